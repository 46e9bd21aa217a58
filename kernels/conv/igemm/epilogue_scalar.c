/* Epilogues of tiles: see epilogue_loops.h. */
#define EPILOGUE qk_any_epilogue__scalar
#include "kernels/conv/igemm/epilogue_loops.h"
