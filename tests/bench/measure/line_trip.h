/* How far apart two CPUs are. CPUs that share an L3 cache pass a cache line on in some 50 ns,
 * others in 100 to 200. A virtual machine's host may run its CPUs on one L3 cache at one time, and
 * on two at another; two threads then help less. */
#pragma once

/* Returns the nanoseconds that a cache line takes from the first of this process's CPUs to the last
 * and back, a mean. Returns 0 if there is only one CPU. Ends the process on failure. */
double bench_line_trip_ns(void);
