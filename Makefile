# quantd. On a bare Debian machine: `make demo` and `make test`. See README.md.
#
#   make                 build/quantd
#   make SAN=address     address+undefined sanitizers, in build/address (or undefined, thread)
#   make ARCH=arm64      for that machine, in build/arm64; test and check-kernels run it in QEMU
#   make demo            a dequantization, a convolution and a network of digits, over HTTP
#   make test            all tests; test-unit and test-e2e run one half, test-short some of them
#   make test T=NAME     one test: a Criterion "suite/name" pattern, or a Python "module.Class.test"
#   make test-cpus       the tests in C and more as older CPUs run them, which QK_CPU plays;
#                        A=--short some of them, A=cascadelake and such one CPU's
#   make check-kernels   each kernel of this CPU's tiers against the scalar ones; A=--time times
#                        them, A='--only gemm/dot' and A='--seed 7' repeat some
#   make check-kernels SAN=memory   the same with clang's memory sanitizer: does a kernel depend on
#                        memory that nobody has written?
#   make check-kernels-emulated   the same on older CPUs, where qemu-user is installed, and on ARM's
#   make conformance     every operator against its references, over HTTP; A='--seed 7' and such
#   make test-load       short load runs, every answer checked; tests/load/load.sh is the tool
#   make test-replicas   docker/haproxy before three replicas that end, are killed, hang, reload;
#                        A=--throughput measures 1, 2, 3 of them into docker/scale.md
#   make test-reliability   p99 beside large work, attacks, drains: into tests/RELIABILITY.md;
#                        A=--short some of it, A='--soak 30' everything mixed for half an hour
#   make test-debian     make test on bare Debian 12 and 13, each in a root of its own, as root;
#                        A=trixie one of them
#   make test-clients    small clients in seven languages; skips those without their toolchain
#   make fuzz SECONDS=60 connections, bodies, ONNX files, operators and more, so long each
#   make mutate          changes lines of the sources and counts what the tests notice of it; see
#                        tests/mutation/README.md
#   make schema          operators in api_schema/openapi.yaml, from the registry, and openapi.json
#   make test-schema     the schema against the registry, the examples, and a running server
#   make test-console    the page at / in a browser; its screenshots are in build/console
#   make test-kubernetes docker/kubernetes against Kubernetes' schemas, the server and the image
#   make image           the container image; IMAGE=name:tag, PLATFORM=linux/arm64, or a list of
#                        both machines' images, PLATFORM=linux/amd64,linux/arm64
#   make test-image      builds one and runs it, as docker/README.md says; PLATFORM as above
#   make bench           speed beside its limits and ONNX Runtime, into tests/bench/RESULTS.md;
#                        A=--help lists what else it can do
#   make model-arm       what llvm-mca says of ARM's inner loops, into tests/bench/RESULTS.md
#   make lint            formatting, include rules, warnings of gcc and clang
#   make install         into DESTDIR and PREFIX (/usr/local): program, man page, systemd unit
#   make uninstall       removes these, with the same DESTDIR and PREFIX
#   make man             build/quantd.1, from --help
#   make dist            build/quantd-VERSION.tar.gz, the sources of the commit that is checked out
#   make clean           remove build/
#   make help            this list
#
# `make` alone, image, dist, install, uninstall, clean and help install no packages. All other
# targets first install missing packages through apt. conformance, bench, schema, test-schema,
# test-console, test-kubernetes and test-clients also install packages of their languages, into
# build/.

SAN ?=
ARCH ?=
# Only clang has the memory sanitizer, which needs all libraries of a program to be built with it.
# So it serves only the kernel checker, which has no libraries.
ifeq ($(SAN),memory)
CC := clang
CFLAGS ?= -O1 -g
endif
# With sanitizers, checks are most of the code. Tracking where variables live between checks costs a
# third of the compiler's time, and tells a debugger little.
CFLAGS ?= $(if $(SAN),-O1 -g -fno-var-tracking,-O2 -g)
B ?= build$(ARCH:%=/%)$(if $(SAN),/$(SAN))
PACKAGES := libmicrohttpd libcjson libuv libprotobuf-c gnutls libisal
PKG_CONFIG ?= pkg-config
PROTOC ?= protoc

# To build for ARM on another machine: a cross compiler, libraries in a folder of their own, and an
# emulator that runs the programs.
ifneq ($(filter-out arm64,$(ARCH)),)
$(error ARCH: expected arm64 or nothing, got $(ARCH))
endif
ifneq ($(and $(ARCH),$(filter-out aarch64,$(shell uname -m))),)
ARM_ROOT := $(CURDIR)/build/arm64/root
CC := aarch64-linux-gnu-gcc
AR := aarch64-linux-gnu-ar
SYSROOT := --sysroot=$(ARM_ROOT)
PKG_CONFIG := env PKG_CONFIG_SYSROOT_DIR=$(ARM_ROOT) \
    PKG_CONFIG_LIBDIR=$(ARM_ROOT)/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config
export CC SYSROOT
export EMULATOR := qemu-aarch64
export QEMU_LD_PREFIX := $(ARM_ROOT)
export QEMU_CPU ?= max
endif

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef -Wstrict-prototypes \
    -Wmissing-prototypes -Wvla -Werror
# Results are exact to the bit, so a*b+c must always round twice.
SEMANTICS := -std=gnu17 -ffp-contract=off -fno-strict-aliasing
SAN_address := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_undefined := -fsanitize=undefined -fno-sanitize-recover=all
SAN_thread := -fsanitize=thread
SAN_memory := -fsanitize=memory -fno-omit-frame-pointer
SAN_fuzz := -fsanitize=fuzzer-no-link,address,undefined # run.sh adds main
export ASAN_OPTIONS ?= strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS ?= print_stacktrace=1
# Hardening ends the program at a memory error, before it can serve an attacker. (Sanitizers check
# by themselves, and glibc's own checks need an optimizer.)
HARDEN := -fstack-protector-strong -fstack-clash-protection -fPIE
ifeq ($(SAN),)
HARDEN += $(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif
HARDEN_LINK := -pie -Wl,-z,relro,-z,now,-z,noexecstack
# pkg-config runs once a make, not once an object, and not before a recipe needs its answer: the
# first recipe may be the one that installs it.
PACKAGE_CFLAGS = $(eval PACKAGE_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES)))\
$(PACKAGE_CFLAGS)
ALL_CFLAGS = $(SEMANTICS) $(WARNINGS) -I. -I$(B) -MMD -MP $(SYSROOT) $(HARDEN) $(SAN_$(SAN)) \
    $(SAN_PLANS) $(CFLAGS) $(TIER) $(PACKAGE_CFLAGS)
ALL_LDFLAGS = $(SYSROOT) $(HARDEN_LINK) $(SAN_$(SAN)) $(LDFLAGS)
# OpenBLAS is not linked: kernels/gemm/openblas.c loads it, and says why.
LDLIBS = $(shell $(PKG_CONFIG) --libs $(PACKAGES)) -ldl -lm -lpthread

KERNELS := \
    kernels/call.c kernels/graph.c kernels/graph_place.c kernels/graph_plan.c \
    kernels/graph_planned.c \
    kernels/network/compose.c kernels/network/compute.c kernels/network/edit.c \
    kernels/network/fate.c kernels/network/fold.c \
    kernels/network/fuse.c kernels/network/fuse_ends.c kernels/network/fuse_operands.c \
    kernels/network/lower.c kernels/network/moves.c kernels/network/pair.c \
    kernels/network/qdq.c kernels/network/tables.c kernels/network/weights.c \
    kernels/cpu.c kernels/measure.c kernels/choice.c kernels/describe.c \
    kernels/dispatch.c \
    kernels/element/element.c kernels/element/float.c kernels/element/narrow.c \
    kernels/operators/registry.c kernels/operators/rules.c kernels/operators/shape_text.c \
    kernels/operators/granularity.c \
    kernels/operators/onnx_dequantize_linear.c kernels/operators/onnx_quantize_linear.c \
    kernels/operators/conv/onnx_conv_integer.c kernels/operators/conv/qlinear_conv.c \
    kernels/operators/conv/rules.c \
    kernels/operators/move/moving.c kernels/operators/move/onnx_concat.c \
    kernels/operators/move/onnx_depth_to_space.c kernels/operators/move/onnx_flatten.c \
    kernels/operators/move/onnx_gather.c kernels/operators/move/onnx_identity.c \
    kernels/operators/move/onnx_pad.c kernels/operators/move/onnx_reshape.c \
    kernels/operators/move/onnx_resize.c kernels/operators/move/onnx_slice.c \
    kernels/operators/move/onnx_split.c \
    kernels/operators/move/onnx_squeeze.c kernels/operators/move/onnx_transpose.c \
    kernels/operators/onnx_argmax.c kernels/operators/onnx_cast.c \
    kernels/operators/integer/pointwise.c kernels/operators/integer/integer_arithmetic.c \
    kernels/operators/integer/onnx_mod.c kernels/operators/integer/onnx_where.c \
    kernels/operators/shape/onnx_shape.c kernels/operators/shape/onnx_range.c \
    kernels/operators/shape/onnx_expand.c \
    kernels/operators/onnx_dynamic_quantize_linear.c \
    kernels/operators/matmul/onnx_qlinear_matmul.c \
    kernels/operators/matmul/microsoft_qgemm.c kernels/operators/matmul/matrix_product.c \
    kernels/operators/microsoft_qlinear_softmax.c kernels/operators/softmax_rows.c \
    kernels/operators/directml_element_wise_dequantize_linear.c \
    kernels/operators/microsoft_qlinear_binary.c \
    kernels/operators/lookup/table_activations.c \
    kernels/operators/lookup/microsoft_qlinear_concat.c \
    kernels/operators/lookup/quantd_lookup.c \
    kernels/operators/float/float_function.c kernels/operators/float/onnx_functions.c \
    kernels/operators/lookup/microsoft_qlinear_where.c \
    kernels/operators/float/onnx_arithmetic.c kernels/operators/float/onnx_clip_and_relu.c \
    kernels/operators/float/onnx_average_pool.c \
    kernels/operators/float/onnx_batch_normalization.c kernels/operators/float/onnx_fused.c \
    kernels/operators/float/onnx_global_average_pool.c \
    kernels/operators/float/onnx_reduce_mean.c kernels/operators/float/onnx_softmax.c \
    kernels/operators/float/row_means.c \
    kernels/operators/tensorflow_dequantize.c \
    kernels/operators/pool/rules.c kernels/operators/pool/onnx_max_pool.c \
    kernels/operators/pool/microsoft_qlinear_average_pool.c \
    kernels/operators/pool/microsoft_qlinear_global_average_pool.c \
    kernels/elementwise/broadcast.c kernels/elementwise/span.c \
    kernels/elementwise/expand.c kernels/elementwise/traversal.c \
    kernels/dequantize/affine.c kernels/dequantize/dequantize.c \
    kernels/dequantize/dequantize_scalar.c kernels/dequantize/dequantize_avx2.c \
    kernels/dequantize/dequantize_avx512bw.c kernels/dequantize/dequantize_avx512vbmi.c \
    kernels/dequantize/dequantize_neon.c \
    kernels/dequantize/dequantize_fp16.c kernels/dequantize/dequantize_sve.c \
    kernels/quantize/quantizer.c kernels/quantize/quantize.c kernels/quantize/dynamic.c \
    kernels/quantize/quantize_scalar.c \
    kernels/quantize/quantize_avx2.c kernels/quantize/quantize_avx512bw.c \
    kernels/quantize/quantize_neon.c \
    kernels/binary/binary.c kernels/binary/binary_scalar.c kernels/binary/binary_avx2.c \
    kernels/binary/binary_avx512bw.c kernels/binary/binary_neon.c \
    kernels/argmax/argmax.c kernels/argmax/argmax_scalar.c kernels/argmax/argmax_avx2.c \
    kernels/argmax/argmax_avx512bw.c kernels/argmax/argmax_neon.c \
    kernels/cast/cast.c kernels/cast/cast_scalar.c kernels/cast/cast_avx2.c \
    kernels/cast/cast_avx512bw.c kernels/cast/cast_neon.c \
    kernels/floats/floats_scalar.c kernels/floats/floats_avx2.c \
    kernels/floats/floats_avx512bw.c kernels/floats/floats_neon.c \
    kernels/floats/pool.c kernels/floats/sums.c \
    kernels/pool/geometry.c kernels/pool/planes.c kernels/pool/pool.c \
    kernels/pool/pool_scalar.c kernels/pool/pool_avx2.c kernels/pool/pool_avx512bw.c \
    kernels/pool/pool_neon.c \
    kernels/lookup/lookup.c kernels/lookup/lookup_scalar.c kernels/lookup/lookup_avx2.c \
    kernels/lookup/lookup_avx512bw.c kernels/lookup/lookup_avx512vbmi.c \
    kernels/lookup/lookup_neon.c kernels/lookup/table_operator.c \
    kernels/resize/linear.c \
    kernels/move/plan.c kernels/move/run.c kernels/move/kernels_scalar.c \
    kernels/move/kernels_avx2.c kernels/move/kernels_avx512bw.c kernels/move/kernels_neon.c \
    kernels/gemm/openblas.c kernels/gemm/igemm_scalar.c \
    kernels/gemm/igemm_6x16_avx2.c kernels/gemm/igemm_u8s8_6x16_avx2.c \
    kernels/gemm/igemm_16x14_avx2.c kernels/gemm/igemm_16x12_avx2.c \
    kernels/gemm/igemm_6x16_avxvnni.c kernels/gemm/igemm_words_6x16_avxvnni.c \
    kernels/gemm/igemm_6x64_avx512vnni.c kernels/gemm/igemm_32x14_avx512vnni.c \
    kernels/gemm/igemm_words_32x14_avx512vnni.c \
    kernels/gemm/igemm_32x32_amx.c kernels/gemm/igemm_6x8_neon.c \
    kernels/gemm/igemm_6x16_dotprod.c kernels/gemm/igemm_12x8_i8mm.c \
    kernels/conv/geometry.c kernels/conv/window.c \
    kernels/conv/igemm/slabs.c kernels/conv/igemm/n_tiles.c kernels/conv/igemm/pack.c \
    kernels/conv/igemm/plan.c kernels/conv/igemm/run.c \
    kernels/conv/igemm/epilogue_scalar.c kernels/conv/igemm/epilogue_avx2.c \
    kernels/conv/igemm/epilogue_avx512bw.c kernels/conv/igemm/epilogue_neon.c \
    kernels/conv/igemm/slab_kernels_scalar.c kernels/conv/igemm/slab_kernels_avx2.c \
    kernels/conv/igemm/slab_kernels_avx512bw.c kernels/conv/igemm/slab_kernels_avx512vbmi.c \
    kernels/conv/igemm/slab_kernels_neon.c \
    kernels/conv/winograd/plan.c kernels/conv/winograd/run.c \
    kernels/conv/winograd/transforms_scalar.c kernels/conv/winograd/transforms_avx2.c \
    kernels/conv/winograd/transforms_avx512bw.c \
    kernels/conv/depthwise/layout.c kernels/conv/depthwise/plan.c \
    kernels/conv/depthwise/patterns.c kernels/conv/depthwise/interleaved.c \
    kernels/conv/depthwise/kernel_scalar.c \
    kernels/conv/depthwise/kernel_avx2.c kernels/conv/depthwise/kernel_avxvnni.c \
    kernels/conv/depthwise/kernel_avx512vnni.c kernels/conv/depthwise/kernel_avx512vbmi.c \
    kernels/conv/depthwise/quads_avx512vbmi.c kernels/conv/depthwise/small_avx512vbmi.c \
    kernels/conv/depthwise/rows_avx512vbmi.c \
    kernels/conv/depthwise/kernel_neon.c kernels/conv/depthwise/kernel_dotprod.c \
    kernels/conv/sgemm/sgemm.c \
    kernels/conv/sgemm/im2col_kernels_scalar.c kernels/conv/sgemm/im2col_kernels_avx2.c \
    kernels/conv/sgemm/im2col_kernels_avx512bw.c \
    kernels/conv/stride_phases.c kernels/conv/channels.c \
    kernels/conv/choose.c kernels/conv/backend.c kernels/conv/call.c \
    kernels/matmul/matmul.c kernels/matmul/run.c \
    kernels/matmul/matmul_scalar.c kernels/matmul/matmul_avx2.c \
    kernels/matmul/matmul_avx512bw.c kernels/matmul/matmul_neon.c

# In include order of folders: each may include only itself and the folders before it.
SERVER := \
    server/base/background.c server/base/digest.c server/base/file.c server/base/snapshots.c \
    server/base/status.c \
    server/memory/admission.c server/memory/arena.c server/memory/blocks.c server/memory/mapping.c \
    server/memory/text.c \
    server/telemetry/line.c server/telemetry/log.c \
    server/telemetry/log_file.c server/telemetry/metrics.c server/telemetry/process.c \
    server/config/address.c server/config/config.c \
    server/json/element.c server/json/number.c server/json/number_print.c server/json/powers.c \
    server/json/reader.c server/json/string.c server/json/tensor.c server/json/tensor_print.c \
    server/json/tree.c \
    server/oip/classes.c server/oip/decode.c server/oip/encode.c server/oip/inputs.c \
    server/oip/labels.c server/oip/metadata.c server/oip/parameters.c server/oip/raw.c \
    server/oip/regions.c server/oip/shm_tensors.c server/oip/signature.c \
    server/models/onnx/foreign.c server/models/onnx/onnx.c server/models/onnx/onnx.pb-c.c \
    server/models/onnx/onnx_node.c server/models/onnx/onnx_parts.c \
    server/models/onnx/onnx_select.c \
    server/models/onnx/onnx_skeleton.c \
    server/models/onnx/onnx_tensor.c server/models/onnx/protobuf.c \
    server/models/repository/folder.c server/models/repository/missing_file.c \
    server/models/repository/repository.c \
    server/models/base64.c server/models/build.c server/models/cut_hint.c \
    server/models/explain/commands.c server/models/explain/explain.c \
    server/models/explain/explain_json.c server/models/explain/explain_text.c \
    server/models/explain/nodes.c server/models/onnx/onnx_list.c \
    server/models/cut_inputs.c server/models/deferred_constants.c server/models/label_files.c \
    server/models/model.c server/models/model_config.c server/models/plans.c \
    server/models/prototext.c server/models/shapes.c server/models/sources.c server/models/table.c \
    server/work/scheduler/cpu_yield.c server/work/scheduler/joining.c \
    server/work/scheduler/loop.c server/work/scheduler/pool.c \
    server/work/scheduler/queue.c server/work/scheduler/scheduler.c \
    server/work/scheduler/straggler.c server/work/body_prefault.c \
    server/work/compression.c server/work/constant_pages.c \
    server/work/infer.c server/work/load.c server/work/loader.c server/work/log_record.c \
    server/work/outputs.c server/work/request.c server/work/scan.c server/work/stream.c \
    server/http/wire/answer_head.c server/http/wire/coding.c server/http/wire/connection.c \
    server/http/wire/direct_response.c server/http/wire/framing.c \
    server/http/wire/head.c server/http/wire/quota.c server/http/wire/socket.c \
    server/http/wire/tls.c \
    server/http/mhd/socket_hooks.c server/http/mhd/tls_hooks.c \
    server/http/mhd/trial.c \
    server/http/endpoint.c server/http/exchange.c \
    server/http/listener.c server/http/path.c server/http/refuse.c \
    server/http/response.c \
    server/http/guard/access.c server/http/guard/cors.c server/http/guard/tokens.c \
    server/http/api/access_log.c server/http/api/answers.c server/http/api/console.c \
    server/http/api/control.c server/http/api/healthcheck.c server/http/api/logging.c \
    server/http/api/request_context.c server/http/api/route.c \
    server/http/api/scrape.c server/http/api/shared_memory.c server/http/api/trace.c

MEASURE := $(sort $(wildcard tests/bench/measure/*.c tests/bench/limits/*.c))
CHECK_KERNELS := $(sort $(wildcard tests/kernels/check/*.c))
# With the thread sanitizer, only tests of code that has threads.
UNIT_TESTS := $(sort $(wildcard tests/unit/*/*.c tests/support/*.c tests/support/kernels/*.c \
    $(if $(filter thread,$(SAN)),,$(patsubst %,tests/kernels/%*.c,test_ conv/ graph/))))

objects = $(patsubst %.c,$(B)/%.o,$(1))

all: $(B)/quantd

# A file's suffix sets its machine flags. dispatch calls its code only if the CPU has these
# features. Other machines lack such flags and compile these files to nothing. (If there is no
# compiler yet, demo and test install one, and then read this Makefile again.)
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
# A kernel call may take only a few cycles, with bounds that its plan has checked, and its arrays
# are registers. Stack canaries made some kernels a sixth slower.
BARE := -fno-stack-protector -fno-stack-clash-protection
%_scalar.o: TIER := $(BARE)
# Kernels in plain C that the compiler turns into vectors.
VECTORIZE := $(if $(SAN),,-O3)
%/pool_scalar.o: TIER := $(BARE) $(VECTORIZE)
# Compilers only make vectors of conditions and square roots if nothing reads errno or the flags of
# floating-point exceptions. These options change no result.
VECTORIZE_FLOATS := $(VECTORIZE) -fno-math-errno -fno-trapping-math
%/floats_scalar.o: TIER := $(BARE) $(VECTORIZE_FLOATS)
%/microsoft_qlinear_where.o: TIER := $(VECTORIZE)
%/microsoft_qlinear_softmax.o: TIER := $(VECTORIZE)
%/resize/linear.o: TIER := $(VECTORIZE)
# Fuzzers also check whether the code that plans calls wraps a size or cuts off a number, which C
# allows. Kernels add modulo 2^32. Other code that wraps on purpose says so (kernels/wrap.h).
ifeq ($(SAN),fuzz)
$(B)/kernels/%.o: SAN_PLANS := \
    -fsanitize=unsigned-integer-overflow,implicit-conversion,float-cast-overflow \
    -fsanitize-ignorelist=tests/fuzz/ignored.txt
$(B)/kernels/%_scalar.o: SAN_PLANS :=
# ccache does not see by itself that the list has changed.
export CCACHE_EXTRAFILES := $(CURDIR)/tests/fuzz/ignored.txt
endif
# With ASan's check for use after return, gcc aligns frames to 32 bytes, not 64 (gcc bug 110027).
SAN_FRAMES := $(and $(filter address,$(SAN)),$(if $(findstring clang,$(CC)),, \
    --param=asan-use-after-return=0))
# Fuzzers test the code that plans calls. Other tests run vector kernels with guard pages and with
# gcc's sanitizers. clang 14 with its own sanitizers takes minutes to compile them, and fails on
# some.
SAN_VECTORS := $(SAN_FRAMES) $(if $(filter fuzz,$(SAN)),-fno-sanitize=all)
# A vector's load or store takes a pointer with any alignment, so the checks for null and alignment
# find nothing. ASan's checks are calls, not inlined code, which saves six minutes of compiling.
ifeq ($(filter address,$(SAN))$(findstring clang,$(CC)),address)
SAN_VECTORS += -fno-sanitize=null,alignment,object-size \
    --param=asan-instrumentation-with-call-threshold=0
endif
ifneq ($(filter x86_64%,$(MACHINE)),)
HARDEN += -fcf-protection
# gcc would clear and copy structs of up to 8 KiB with rep stos and rep movs, which take some 30
# cycles to start. clang does not.
STRUCTS := unrolled_loop:256:noalign,libcall:-1:noalign
TIER := $(shell $(CC) -mmemset-strategy=$(STRUCTS) -E -x c /dev/null >/dev/null 2>&1 && \
    echo -mmemset-strategy=$(STRUCTS) -mmemcpy-strategy=$(STRUCTS))
AVX2 := $(BARE) -mavx2 -mfma -mf16c -mbmi -mbmi2 $(SAN_VECTORS)
%_avx2.o: TIER := $(AVX2)
%_avxvnni.o: TIER := $(AVX2) -mavxvnni
AVX512BW := $(AVX2) -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl
%_avx512bw.o: TIER := $(AVX512BW)
%_avx512vnni.o: TIER := $(AVX512BW) -mavx512vnni
%_avx512vbmi.o: TIER := $(AVX512BW) -mavx512vnni -mavx512vbmi -mavx512vbmi2
%/matmul_avx2.o: TIER := $(AVX2) -O3
%/matmul_avx512bw.o: TIER := $(AVX512BW) -O3 -mprefer-vector-width=512
%_amx.o: TIER := $(BARE) -mavx512f -mavx512vnni -mamx-tile -mamx-int8 $(SAN_VECTORS)
%/argmax_avx2.o: TIER := $(AVX2) $(VECTORIZE)
%/argmax_avx512bw.o: TIER := $(AVX512BW) $(VECTORIZE) -mprefer-vector-width=512
%/cast_avx2.o: TIER := $(AVX2) $(VECTORIZE)
%/cast_avx512bw.o: TIER := $(AVX512BW) $(VECTORIZE) -mprefer-vector-width=512
%/pool_avx2.o: TIER := $(AVX2) $(VECTORIZE)
%/epilogue_avx2.o: TIER := $(AVX2) $(VECTORIZE)
%/epilogue_avx512bw.o: TIER := $(AVX512BW) $(VECTORIZE) -mprefer-vector-width=512
%/pool_avx512bw.o: TIER := $(AVX512BW) $(VECTORIZE) -mprefer-vector-width=512
%/floats_avx2.o: TIER := $(AVX2) $(VECTORIZE_FLOATS)
%/floats_avx512bw.o: TIER := $(AVX512BW) $(VECTORIZE_FLOATS) -mprefer-vector-width=512
%/move_avx2.o: TIER := -O3 -mavx2
%/move_avx512.o: TIER := -O3 -mavx512f
# Plain loops, which -O3 vectorizes.
$(B)/kernels/move/kernels_avx2.o: TIER := $(AVX2) -O3
$(B)/kernels/move/kernels_avx512bw.o: TIER := $(AVX512BW) -O3
else ifneq ($(filter aarch64%,$(MACHINE)),)
HARDEN += -mbranch-protection=standard
NEON := $(BARE) $(SAN_VECTORS)
%_neon.o: TIER := $(NEON) -march=armv8-a
%/matmul_neon.o: TIER := $(NEON) -O3
%/argmax_neon.o: TIER := $(NEON) -march=armv8-a $(VECTORIZE)
%/cast_neon.o: TIER := $(NEON) -march=armv8-a $(VECTORIZE)
%/epilogue_neon.o: TIER := $(NEON) -march=armv8-a $(VECTORIZE)
%/pool_neon.o: TIER := $(NEON) -march=armv8-a $(VECTORIZE)
%/floats_neon.o: TIER := $(NEON) -march=armv8-a $(VECTORIZE_FLOATS)
$(B)/kernels/move/kernels_neon.o: TIER := $(NEON) -march=armv8-a -O3
%_dotprod.o: TIER := $(NEON) -march=armv8.2-a+dotprod
%_i8mm.o: TIER := $(NEON) -march=armv8.2-a+dotprod+i8mm
%_fp16.o: TIER := $(NEON) -march=armv8.2-a+fp16
%_sve.o: TIER := $(NEON) -march=armv8.2-a+sve+bf16
endif
%/move.o: TIER := -O3 # unrolled, so that the loop does not limit the speed
# The naive convolution was two fifths of the convolutions' time under the address sanitizer. It is
# the tests' own code: it reads tensors that lie between guard pages, and make test runs it, too.
%/naive_conv.o: TIER := $(if $(SAN),-O2 -fno-sanitize=all)

# The compiler and the flags that objects were made with. If they change, all objects are made
# again.
# An object passes its own TIER on to what it needs.
$(B)/flags: TIER := $(TIER)
$(B)/flags: export FLAGS = $(notdir $(lastword $(CC))) $(ALL_CFLAGS) $(AVX512BW) $(ALL_LDFLAGS)
$(B)/flags: always
	@mkdir -p $(@D)
	@printf '%s\n' "$$FLAGS" | cmp -s - $@ || printf '%s\n' "$$FLAGS" >$@

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The reader of an ONNX file's messages, which protobuf-c's compiler writes.
MESSAGES := $(B)/server/models/onnx/onnx.pb-c
$(MESSAGES).c $(MESSAGES).h &: server/models/onnx/onnx.proto
	@mkdir -p $(@D)
	$(PROTOC) --c_out=$(B) $<
$(MESSAGES).o: $(MESSAGES).c $(B)/flags
	$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(patsubst %,$(B)/server/models/onnx/%.o,onnx onnx_node onnx_parts onnx_select onnx_skeleton \
    onnx_tensor): | $(MESSAGES).h
$(B)/tests/unit/models/test_onnx_tensors.o: | $(MESSAGES).h

# Files that are embedded in an object.
$(B)/server/http/api/answers.o: api_schema/openapi.yaml api_schema/openapi.json
$(B)/server/http/api/console.o: $(wildcard server/console/*)

$(B)/libqk.a: $(call objects,$(KERNELS)) Makefile
	@rm -f $@
	$(AR) qcs $@ $(filter %.o,$^)

$(B)/libserver.a: $(call objects,$(SERVER)) Makefile
	@rm -f $@
	$(AR) qcs $@ $(filter %.o,$^)

$(B)/quantd: $(call objects,server/main.c) $(B)/libserver.a $(B)/libqk.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/unit-tests: $(call objects,$(UNIT_TESTS)) $(B)/libserver.a $(B)/libqk.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcriterion $(LDLIBS)

$(B)/check-kernels: $(call objects,$(CHECK_KERNELS)) $(B)/libqk.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl -lm

$(B)/measure: $(call objects,$(MEASURE)) $(B)/libserver.a $(B)/libqk.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

# Quiet, and on all cores unless the caller chose -j.
SUBMAKE = $(MAKE) --no-print-directory -s $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
INSTALL = tests/support/install-packages.sh
# Also installs libraries, after INSTALL, when building for another machine.
ARM_LIBRARIES = @$(if $(ARM_ROOT),$(INSTALL) arm64 && tests/support/arm64-root.sh $(ARM_ROOT))

demo:
	@$(INSTALL) build demo
	$(ARM_LIBRARIES)
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) tests/demo/demo.sh

test test-unit test-e2e test-short:
	@$(INSTALL) build test
	$(ARM_LIBRARIES)
	@echo "Building what is tested into $(B)"
	+@$(SUBMAKE) $(B)/quantd $(if $(filter test test-unit,$@),$(B)/unit-tests) \
	    $(if $(filter test-e2e,$@)$(filter thread,$(SAN)),,$(B)/check-kernels)
	@B=$(B) python3 tests/support/run_tests.py $(patsubst test-%,--%,$(filter test-%,$@)) '$(T)'

test-cpus:
	@$(INSTALL) build test
	$(ARM_LIBRARIES)
	+@$(SUBMAKE) $(B)/quantd $(B)/unit-tests $(B)/check-kernels
	@B=$(B) python3 tests/support/run_cpus.py $(A)

# clang 14's memory sanitizer does not see AMX's tile loads and stores.
UNSEEN := $(if $(filter memory,$(SAN)),--except ' amx')
check-kernels:
	@$(INSTALL) build $(if $(filter memory,$(SAN)),fuzz)
	$(ARM_LIBRARIES)
	+@$(SUBMAKE) $(B)/check-kernels
	@$(if $(and $(EMULATOR),$(if $(A),,all)),B=$(B) python3 tests/support/run_tests.py --kernels, \
	    $(EMULATOR) $(B)/check-kernels $(UNSEEN) $(A))

check-kernels-emulated:
	@$(INSTALL) build
	+@$(SUBMAKE) $(B)/check-kernels
	@B=$(B) tests/kernels/check/emulated.sh

conformance:
	@$(INSTALL) build conformance
	@$(SUBMAKE) $(B)/quantd
	@tests/conformance/setup
	@python=build/conformance/venv/bin/python; test -x $$python || python=python3; \
	    B=$(B) $$python tests/conformance/run.py $(A)

test-debian:
	@$(INSTALL) debian
	@tests/debian/run.sh $(A)

test-load:
	@$(INSTALL) build load
	@$(SUBMAKE) $(B)/quantd
	@B=$(B) python3 tests/load/test_load_script.py

test-replicas:
	@$(INSTALL) build replicas
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) python3 tests/replicas/run.py $(A) $(T)

test-reliability:
	@$(INSTALL) build test reliability
	@$(SUBMAKE) $(B)/quantd $(B)/measure
	@B=$(B) python3 tests/reliability/run.py $(A)

test-clients:
	@$(INSTALL) build clients
	@$(SUBMAKE) $(B)/quantd
	@B=$(B) python3 tests/clients/run.py

fuzz:
	@$(INSTALL) build fuzz
	@tests/fuzz/run.sh $(SECONDS)

mutate:
	@$(INSTALL) build test mutate
	@python3 tests/mutation/run.py $(A)

schema:
	@$(INSTALL) build schema
	@tests/schema/setup
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) build/schema/venv/bin/python tests/schema/make_operators.py
	@build/schema/venv/bin/python tests/schema/make_json.py

test-schema:
	@$(INSTALL) build schema
	@tests/schema/setup
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) build/schema/venv/bin/python tests/support/run_folder.py schema '$(T)'

test-console:
	@$(INSTALL) build console
	@tests/console/setup
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) build/console/venv/bin/python tests/support/run_folder.py console '$(T)'

test-kubernetes:
	@$(INSTALL) build kubernetes
	@tests/kubernetes/setup
	@echo "Building $(B)/quantd"
	+@$(SUBMAKE) $(B)/quantd
	@B=$(B) build/kubernetes/venv/bin/python tests/support/run_folder.py kubernetes '$(T)'

image:
	@docker/build.sh

test-image:
	@tests/image/run.sh $(T)

dist:
	@docker/dist.sh

bench:
	@$(INSTALL) build bench
	$(ARM_LIBRARIES)
	+@$(SUBMAKE) $(B)/quantd $(B)/measure
	@tests/bench/setup.sh
	@python=build/bench/venv/bin/python; test -x $$python || python=python3; \
	    B=$(B) $$python tests/bench/run.py $(A)

# Builds only objects, which need no libraries of that machine.
MODEL := build/model
model-arm:
	@$(INSTALL) build model
	+@$(SUBMAKE) ARCH= B=$(MODEL) CC=aarch64-linux-gnu-gcc CFLAGS=-O2 \
	    $(patsubst %.c,$(MODEL)/%.o,\
	        $(filter %_neon.c %_dotprod.c %_i8mm.c %_fp16.c %_sve.c,$(KERNELS)))
	@python3 tests/bench/model_arm.py $(MODEL)

lint:
	@$(INSTALL) build lint
	@tests/lint/lint.py

# install uses the programs that exist, and needs root only if DESTDIR and PREFIX belong to root.
DESTDIR ?=
PREFIX ?= /usr/local
HELP2MAN ?= help2man
BIN_DIR = $(DESTDIR)$(PREFIX)/bin
MAN_DIR = $(DESTDIR)$(PREFIX)/share/man/man1
UNIT_DIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
SHARE_DIR = $(DESTDIR)$(PREFIX)/share/quantd

$(B)/quantd.1: $(B)/quantd
	$(HELP2MAN) --no-info --name 'quantized neural networks and operators over HTTP' --output $@ $<

man:
	@$(INSTALL) build man
	+@$(SUBMAKE) $(B)/quantd.1

# Check PREFIX for ExecStart and sed before anything is installed.
export PREFIX
install: $(B)/quantd
	@case $$PREFIX in *[!A-Za-z0-9/._+-]*) \
	    echo "PREFIX: expected letters, digits and /._+-, got '$$PREFIX'" >&2; exit 1;; \
	[!/]*) echo "PREFIX: expected an absolute path, got '$$PREFIX'" >&2; exit 1;; esac
	install -d "$(BIN_DIR)" "$(UNIT_DIR)" "$(SHARE_DIR)"
	install -m 755 $(B)/quantd "$(BIN_DIR)/quantd"
	sed 's|^ExecStart=.*/bin/|ExecStart=$(PREFIX)/bin/|' docker/systemd/quantd.service \
	    >"$(UNIT_DIR)/quantd.service"
	chmod 644 "$(UNIT_DIR)/quantd.service"
	install -m 644 $(wildcard LICENSE api_schema/openapi.yaml) "$(SHARE_DIR)"
	+@if command -v $(HELP2MAN) >/dev/null; then \
	    $(SUBMAKE) $(B)/quantd.1 && install -d "$(MAN_DIR)" && \
	        install -m 644 $(B)/quantd.1 "$(MAN_DIR)/quantd.1"; \
	else \
	    echo "The man page is left out: $(HELP2MAN) is not installed"; \
	fi

uninstall:
	rm -f "$(BIN_DIR)/quantd" "$(UNIT_DIR)/quantd.service" "$(MAN_DIR)/quantd.1"
	rm -f "$(SHARE_DIR)/LICENSE" "$(SHARE_DIR)/openapi.yaml"
	test ! -d "$(SHARE_DIR)" || rmdir --ignore-fail-on-non-empty "$(SHARE_DIR)"
	@# Remove empty folders, except in /usr and /usr/local, where the system made them.
	@case $$PREFIX in [!/]*|/usr|/usr/local) exit;; esac; cd "$(DESTDIR)$(PREFIX)" || exit 0; \
	for folder in bin lib/systemd/system share/man/man1 share; do \
	    test ! -d $$folder || rmdir -p --ignore-fail-on-non-empty $$folder; \
	done

help:
	@sed -n 's/^#   //p' Makefile

# Checks that every header compiles alone.
headers: $(patsubst %,$(B)/%.alone,$(wildcard kernels/*.h kernels/*/*.h kernels/*/*/*.h \
    server/*.h server/*/*.h server/*/*/*.h))

$(B)/server/models/onnx/onnx_reader.h.alone: $(MESSAGES).h
$(B)/kernels/gemm/%_avx2.h.alone: TIER := $(AVX2)
$(B)/%.h.alone: %.h
	@mkdir -p $(@D)
	printf '#include "%s"\nint nothing;\n' $< | \
	    $(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -fsyntax-only -x c -
	@touch $@

clean:
	rm -rf build

.PHONY: all always headers demo test test-unit test-e2e test-short conformance test-clients fuzz
.PHONY: test-cpus test-debian
.PHONY: lint help
.PHONY: clean test-reliability
.PHONY: check-kernels check-kernels-emulated
.PHONY: install uninstall man dist
.PHONY: schema test-schema test-console test-kubernetes
.PHONY: image test-image
.PHONY: test-load test-replicas
.PHONY: mutate
.PHONY: bench model-arm
.SECONDARY:
-include $(patsubst %.o,%.d,$(call objects,$(KERNELS) $(SERVER) server/main.c $(UNIT_TESTS) \
    $(CHECK_KERNELS) $(MEASURE)))
