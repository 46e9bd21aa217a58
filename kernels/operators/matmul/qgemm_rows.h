/* An operator that no file names, for graphs that fusing makes. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* QGemm whose A may have any number of axes before the last one, as that of MatMul. */
extern const struct qk_operator qk_microsoft_qgemm_rows;
