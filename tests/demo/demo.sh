#!/bin/sh
# Shows what quantd does, through curl: a small dequantization in JSON, a photograph through a
# convolution in binary, a network that reads handwritten digits, and a request that is refused.
# Fails if any answer is not bit for bit what it should be. Needs POSIX sh, curl, coreutils and awk;
# run it with `make demo`.
set -eu
cd "$(dirname "$0")/../.."
build=${B:-build}
out=$build/demo
mkdir -p "$out"
rm -f "$out"/*
: >"$out/listening" # what an earlier run said must not be taken for an answer

bold='' dim='' reset=''
if test -t 1 && test -z "${NO_COLOR-}" && test "${TERM:-dumb}" != dumb; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') reset=$(printf '\033[0m')
fi

fail()
{
    echo "demo: $1" >&2
    exit 1
}

# ---- The server, on a free port -----------------------------------------------------------------

${EMULATOR:-} "$build/quantd" --listen 127.0.0.1:0 --model-repository tests/demo/digits/models \
    >"$out/listening" 2>"$out/log" &
server=$!
trap 'kill "$server" 2>/dev/null || :' EXIT
trap 'exit 1' HUP INT PIPE TERM
tries=0
until grep -q '^quantd listening on ' "$out/listening"; do
    kill -0 "$server" 2>/dev/null || fail "the server did not start: $(cat "$out/log")"
    tries=$((tries + 1))
    test $tries -lt 300 || fail "the server did not say where it listens"
    sleep 0.1
done
url=$(sed -n 's/^quantd listening on //p' "$out/listening")
echo "${bold}quantd${reset} listens on $url"

# post MODEL FILE [CURL OPTION...]: prints the status; the answer is in $out/answer, its header
# fields in $out/headers.
post()
{
    model=$1 file=$2
    shift 2
    curl -sS -o "$out/answer" -D "$out/headers" -w '%{http_code}' --data-binary "@$file" "$@" \
        "$url/v2/models/$model/infer"
}

header()
{
    awk -v name="$1:" 'tolower($1) == name { sub("\r$", ""); sub("^[^ ]* ", ""); print }' \
        "$out/headers"
}

# A bar for each stage of the last answer, from its Server-Timing header.
show_stages()
{
    header server-timing | awk -v RS=', *' -F '[;=\n]' '
        { name[NR] = $1; ms[NR] = $3; if ($1 != "total" && $3 > longest) longest = $3 }
        END {
            for (i = 1; i <= NR; i++) {
                bar = ""
                width = name[i] == "total" || longest == 0 ? 0 : int(40 * ms[i] / longest + 0.5)
                while (width-- > 0)
                    bar = bar "█"
                printf "    %-8s %9.3f ms  %s\n", name[i], ms[i], bar
            }
        }'
}

# The cat's eye in each of the four pictures of $out/cat.ppm, side by side in 79 columns, for
# terminals: 4 x 4 pixels make one cell, and a character is two cells, one in each of its colours.
show_eyes()
{
    tail -c $((4 * pixel_bytes)) "$out/cat.ppm" | od -An -v -tu1 -w768 | awk '
        {
            picture = int((NR - 1) / 256)
            y = (NR - 1) % 256 - 42
            if (y < 0 || y >= 80)
                next
            for (x = 0; x < 76; x++)
                for (colour = 1; colour <= 3; colour++)
                    cell[picture, int(y / 4), int(x / 4), colour] += $(3 * (x + 20) + colour) / 16
        }
        function rgb(picture, y, x) {
            return sprintf("%d;%d;%d", cell[picture, y, x, 1], cell[picture, y, x, 2],
                           cell[picture, y, x, 3])
        }
        END {
            for (y = 0; y < 20; y += 2) {
                for (picture = 0; picture < 4; picture++) {
                    for (x = 0; x < 19; x++)
                        printf "\033[38;2;%s;48;2;%sm▀", rgb(picture, y, x), rgb(picture, y + 1, x)
                    printf "\033[0m "
                }
                print ""
            }
            printf "%-20s%-20s%-20s%s\n", "photograph", "sharpened", "embossed", "edges"
        }'
}

# ---- 1. JSON in, JSON out -----------------------------------------------------------------------

printf '\n%s1  Dequantize six numbers, in JSON%s   y = (x - zero point) * scale, row by row\n' \
    "$bold" "$reset"
cat >"$out/dequantize.json" <<'JSON'
{"parameters": {"axis": 0},
 "inputs": [
   {"name": "x", "datatype": "UINT8", "shape": [2, 3],
    "data": [[0, 128, 255], [0, 128, 255]]},
   {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, 0.1]},
   {"name": "x_zero_point", "datatype": "UINT8", "shape": [2],
    "data": [128, 0]}]}
JSON
echo "${dim}POST /v2/models/onnx.DequantizeLinear/infer${reset}"
cat "$out/dequantize.json"
status=$(post onnx.DequantizeLinear "$out/dequantize.json")
echo "${dim}HTTP $status${reset}"
cat "$out/answer"
echo
test "$status" = 200 || fail "expected HTTP 200"
grep -qF '"shape":[2,3],"data":[-64,0,63.5,0,12.8,25.5]' "$out/answer" ||
    fail "expected -64, 0, 63.5, 0, 12.8, 25.5"

# ---- 2. A photograph in, three filtered ones out, as bytes --------------------------------------
#
# A PPM file is a short header and then the pixels, row by row, red green blue red green blue. Those
# bytes are posted as they lie, as one channel of 256 rows and 3 * 256 columns: with a dilation of 3
# along the row, the neighbours that a 3 x 3 kernel sees are three bytes apart, of the same colour.
# So an ordinary convolution filters a colour picture. Each of the three output channels is a kernel
# of its own, and the answer's bytes are three pictures, one below the other: behind a new PPM
# header they are an image file again. Zero points of 128 make the border around the picture grey.

photo=tests/data/cat.ppm
photo_header_bytes=15
pixel_bytes=$((256 * 256 * 3))
printf '\n%s2  Filter a photograph, in binary%s   %s, 256 x 256\n' "$bold" "$reset" "$photo"
cat >"$out/convolve.json" <<JSON
{"parameters": {"dilations": "1,3", "pads": "1,3,1,3", "binary_data_output": true},
 "inputs": [
   {"name": "x", "datatype": "UINT8", "shape": [1, 1, 256, 768],
    "parameters": {"binary_data_size": $pixel_bytes}},
   {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.003921569]},
   {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [128]},
   {"name": "w", "datatype": "INT8", "shape": [3, 1, 3, 3], "data": [
     [[[ 0, -1,  0], [-1,  5, -1], [ 0, -1,  0]]],
     [[[-2, -1,  0], [-1,  1,  1], [ 0,  1,  2]]],
     [[[-1, -1, -1], [-1,  8, -1], [-1, -1, -1]]]]},
   {"name": "w_scale", "datatype": "FP32", "shape": [3], "data": [1, 1, 2]},
   {"name": "w_zero_point", "datatype": "INT8", "shape": [], "data": [0]},
   {"name": "y_scale", "datatype": "FP32", "shape": [], "data": [0.003921569]},
   {"name": "y_zero_point", "datatype": "UINT8", "shape": [], "data": [128]}]}
JSON
sed -n '/"w"/,/\]\]\]\]/p' "$out/convolve.json" # the kernels: sharpen, emboss, edges
tail -c +$((photo_header_bytes + 1)) "$photo" >"$out/pixels"
cat "$out/convolve.json" "$out/pixels" >"$out/convolve.bin"
json_bytes=$(wc -c <"$out/convolve.json")
echo "${dim}POST /v2/models/onnx.QLinearConv/infer"
echo "$json_bytes bytes of JSON, then $pixel_bytes bytes of pixels${reset}"
status=$(post onnx.QLinearConv "$out/convolve.bin" -H 'Content-Type: application/octet-stream' \
    -H "Inference-Header-Content-Length: $json_bytes")
echo "${dim}HTTP $status${reset}"
test "$status" = 200 || fail "expected HTTP 200, got: $(head -c 1000 "$out/answer")"
answer_json_bytes=$(header inference-header-content-length)
head -c "$answer_json_bytes" "$out/answer"
echo
tail -c +$((answer_json_bytes + 1)) "$out/answer" >"$out/filtered"
# Computed by ONNX Runtime, see tests/data/README.md.
expected=e97d12de1961643c9081627617da0b068a219866ad8160bee72d9da7ca318cf2
test "$(sha256sum <"$out/filtered" | cut -d ' ' -f 1)" = "$expected" ||
    fail "the filtered pictures differ from those of ONNX Runtime"
{
    printf 'P6\n256 1024\n255\n'
    cat "$out/pixels" "$out/filtered"
} >"$out/cat.ppm"
test -z "$bold" || show_eyes
show_stages
echo "    $out/cat.ppm: the photograph, sharpened, embossed, its edges"
echo "    The bytes are those of ONNX Runtime."

# ---- 3. Images of digits in, scores out, by a network -------------------------------------------
#
# tests/demo/digits/train.py trained the network, had ONNX Runtime quantize it, and held 360 images
# out. Their floats are the body of one request, and ONNX Runtime's answers lie beside them.

digits=tests/demo/digits
image_bytes=$(wc -c <"$digits/images.f32")
printf '\n%s3  Read handwritten digits%s   with a network that ONNX Runtime quantized\n' \
    "$bold" "$reset"
echo "${dim}quantd --model-repository $digits/models"
echo "POST /v2/models/digits/infer"
echo "$image_bytes bytes: the floats of 360 images${reset}"
status=$(post digits "$digits/images.f32" -H 'Inference-Header-Content-Length: 0')
echo "${dim}HTTP $status${reset}"
test "$status" = 200 || fail "expected HTTP 200, got: $(head -c 1000 "$out/answer")"
answer_json_bytes=$(header inference-header-content-length)
head -c "$answer_json_bytes" "$out/answer"
echo
tail -c +$((answer_json_bytes + 1)) "$out/answer" >"$out/scores.f32"
cmp -s "$out/scores.f32" "$digits/scores.f32" ||
    fail "the digits' scores differ from those of ONNX Runtime"
od -An -v -tf4 -w256 "$digits/images.f32" >"$out/images.txt"
od -An -v -tf4 -w40 "$out/scores.f32" >"$out/scores.txt"
awk -v shown='22 18 41 226' -v colours="$bold" -f "$digits/draw.awk" \
    "$digits/labels.txt" "$out/images.txt" "$out/scores.txt"
echo "; all 360 answers are ONNX Runtime's bytes."
header server-timing | sed 's/.*compute;dur=\([0-9.]*\).*/\1/' |
    awk '{ us = 1000 * $1
           printf "    Computed in %.0f µs, %.1f µs for each image.\n", us, us / 360 }'

# ---- 4. A mistake -------------------------------------------------------------------------------

printf '\n%s4  A mistake%s\n' "$bold" "$reset"
cat >"$out/mistake.json" <<'JSON'
{"inputs": [
   {"name": "x", "datatype": "UINT8", "shape": [3], "data": [1, 2, 300]},
   {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]}]}
JSON
echo "${dim}POST /v2/models/onnx.DequantizeLinear/infer${reset}"
cat "$out/mistake.json"
status=$(post onnx.DequantizeLinear "$out/mistake.json")
echo "${dim}HTTP $status${reset}"
cat "$out/answer"
echo
test "$status" = 400 || fail "expected HTTP 400"
grep -q '^{"error":".*300.*"}$' "$out/answer" || fail "expected an error that names the value"

# ---- The end ------------------------------------------------------------------------------------

kill -TERM "$server"
trap - EXIT
wait "$server" || fail "the server ended with status $?: $(cat "$out/log")"
printf '\nSIGTERM: the server ended with status 0. All answers were right, bit for bit.\n'
