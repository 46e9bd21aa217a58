/* Epilogues of tiles: see epilogue_loops.h. */
#include "kernels/conv/igemm/slab_kernels.h"

#ifdef __x86_64__

#define EPILOGUE qk_any_epilogue__avx2
#include "kernels/conv/igemm/epilogue_loops.h"

#endif
