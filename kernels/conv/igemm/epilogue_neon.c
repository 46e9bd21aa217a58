/* Epilogues of tiles: see epilogue_loops.h. */
#include "kernels/conv/igemm/slab_kernels.h"

#ifdef __aarch64__

#define EPILOGUE qk_any_epilogue__neon
#include "kernels/conv/igemm/epilogue_loops.h"

#endif
