#include "kernels/conv/window.h"

/* Returns the first i >= 0 with first + i * stride >= bound, but at most `count`. */
static size_t first_reaching(int64_t first, int64_t stride, int64_t bound, size_t count)
{
    if (first >= bound)
        return 0;
    uint64_t i = (uint64_t)((bound - first - 1) / stride) + 1;
    return i < count ? (size_t)i : count;
}

void qk_window_fit(struct qk_window *window)
{
    window->inside_rows = (struct qk_window_range){
        first_reaching(window->row_first, window->row_stride, 0, window->rows),
        first_reaching(window->row_first, window->row_stride, window->in_rows, window->rows),
    };
    window->inside_columns = (struct qk_window_range){
        first_reaching(window->column_first, window->column_stride, 0, window->columns),
        first_reaching(window->column_first, window->column_stride, window->in_columns,
                       window->columns),
    };
}

bool qk_window_flatten(struct qk_window *window)
{
    const bool run = window->column_stride == 1 && window->inside_columns.begin == 0 &&
                     window->inside_columns.end == window->columns &&
                     window->inside_rows.begin == 0 && window->inside_rows.end == window->rows &&
                     (window->rows == 1 ||
                      (window->row_stride == 1 && (int64_t)window->pitch == window->in_columns));
    if (run) {
        window->columns += (window->rows - 1) * window->pitch;
        window->rows = window->inside_rows.end = 1;
        window->inside_columns.end = window->columns;
    }
    return run;
}
