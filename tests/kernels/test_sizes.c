/* How work is cut into units that two threads share (kernels/sizes.h). */
#include <criterion/criterion.h>
#include <stdint.h>

#include "kernels/sizes.h"

/* Lets two threads take units in turn: the one that has computed less takes the next. Returns for
 * how many items the busier one computes. */
static size_t play(size_t count, size_t unit)
{
    size_t done[2] = {0, 0};
    for (size_t at = 0; at < count; at += unit)
        done[done[1] < done[0]] += qk_size_min(unit, count - at);
    return qk_size_max(done[0], done[1]);
}

Test(sizes, the_busier_thread_computes_as_many_items_as_it_says)
{
    for (size_t count = 1; count <= 100; count++)
        for (size_t unit = 1; unit <= count; unit++)
            cr_assert_eq(qk_longer_share(count, unit), play(count, unit), "%zu of %zu", unit,
                         count);
}

Test(sizes, units_are_within_their_bounds_and_never_worse_than_even_ones)
{
    for (size_t count = 0; count <= 200; count++) {
        for (size_t most = 1; most <= 210; most++) {
            const size_t least = most / 3;
            const size_t unit = qk_unit_items(count, least, most), even = qk_even_part(count, most);
            cr_assert_geq(unit, 1);
            cr_assert_leq(unit, most);
            cr_assert_geq(unit, qk_size_min(least, even));
            cr_assert(count == 0 || play(count, unit) <= play(count, even), "%zu of %zu", most,
                      count);
        }
    }
}

Test(sizes, three_units_become_four_and_a_small_rest_is_avoided)
{
    cr_expect_eq(qk_unit_items(24, 1, 11), 6); /* not 8 8 8, but 6 6 6 6 */
    cr_expect_eq(qk_unit_items(49, 8, 9), 8);  /* not 9 9 9 9 9 4, but 8 8 8 8 8 8 1 */
    cr_expect_eq(qk_unit_items(49, 9, 9), 9);
    cr_expect_eq(qk_unit_items(10, 1, 10), 10); /* a single unit stays one */
    cr_expect_eq(qk_unit_items((size_t)1 << 40, 1, SIZE_MAX), (size_t)1 << 40);
}
