/* Says which windows the kernels of planes compute, and how rows lie in their scratch memory.
 * Private to kernels/. */
#pragma once

#include "kernels/pool/kernels.h"

/* Fills `planes` for maxima or averages of these windows. Returns false if the windows are others
 * than those of planes, or beyond a limit of kernels.h. */
bool qk_pool_planes_init(struct qk_pool_planes *planes, const struct qk_pool_geometry *geometry,
                         bool average);

/* Returns true if averages with these scales never overflow, and never lose bits below the least
 * number. Kernels of planes then may divide by y_scale with products, which are exact. */
bool qk_pool_is_tame(float x_scale, float y_scale);
