#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __AMX_INT8__

#include <immintrin.h>

enum { TILES = 8, TILE_ROWS = 16, ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * ROW_BYTES };

struct config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Four sums share two tiles of each side, as in a matrix product. */
static void run_amx(void)
{
    static const uint8_t data[4 * TILE_BYTES] __attribute__((aligned(64)));
    struct config config = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        config.rows[i] = TILE_ROWS;
        config.row_bytes[i] = ROW_BYTES;
    }
    /* GCC 12 assumes that the instruction reads only 8 bytes, and would not store the other
     * bytes. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++) {
        _tile_loadd(4, data, ROW_BYTES);
        _tile_loadd(5, data + TILE_BYTES, ROW_BYTES);
        _tile_loadd(6, data + 2 * TILE_BYTES, ROW_BYTES);
        _tile_loadd(7, data + 3 * TILE_BYTES, ROW_BYTES);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
}

const struct bench_peak bench_peaks_amx[] = {
    {"amx", QK_CPU_AMX, (size_t)2 * 4 * TILE_ROWS *TILE_ROWS *ROW_BYTES *BENCH_PEAK_ROUNDS,
     run_amx},
    {0}};

#else

const struct bench_peak bench_peaks_amx[] = {{0}};

#endif
