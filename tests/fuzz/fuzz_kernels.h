/* The kernels that all fuzz targets compute with. They are scalar, because these targets test the
 * handling of bytes. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "kernels/qk.h"

static struct qk_kernels *make_kernels(void)
{
    struct qk_kernels *kernels;
    struct qk_error error;
    if (qk_kernels_create("scalar", "auto", false, 1, &kernels, &error) != QK_OK) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
    return kernels;
}
