#include "kernels/conv/vector.h"

/* The first i >= 0 with first + i * stride >= bound, at most `count`. */
static size_t first_reaching(int64_t first, int64_t stride, int64_t bound, size_t count)
{
    if (first >= bound)
        return 0;
    uint64_t i = (uint64_t)((bound - first - 1) / stride) + 1;
    return i < count ? (size_t)i : count;
}

void qk_stage_fit(struct qk_stage *job)
{
    job->inside_rows = (struct qk_stage_range){
        first_reaching(job->row_first, job->row_stride, 0, job->rows),
        first_reaching(job->row_first, job->row_stride, job->in_rows, job->rows),
    };
    job->inside_columns = (struct qk_stage_range){
        first_reaching(job->column_first, job->column_stride, 0, job->columns),
        first_reaching(job->column_first, job->column_stride, job->in_columns, job->columns),
    };
}
