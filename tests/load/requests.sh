# shellcheck shell=bash
# Makes the requests that load.sh posts, and the answers that it expects. Sourced by load.sh.
#
# make_requests OPERATOR SIZE FORM FOLDER writes, for each variant V below $variants,
#
#   FOLDER/request.V   the body to post
#   FOLDER/head.V      the answer's JSON, without the fields that differ each time (see step.sh)
#   FOLDER/tail.V      the bytes after that JSON; empty in JSON form
#
# and sets model, version, json_bytes[V] (empty in JSON form), tail_bytes and answer_bytes. The
# variants differ, so the answer to another request counts as wrong.

# shellcheck disable=SC2034,SC2154 # load.sh and step.sh read these; load.sh sets here
variants=4
elements_max=4194304
json_bytes=()

# element_count SIZE: prints the number of elements.
element_count()
{
    echo $((${1//x/*}))
}

# check_size OPERATOR SIZE: fails and prints what is wrong if the size is not valid.
check_size()
{
    local digits='[1-9][0-9]{0,6}' channels height width
    if [[ $1 != qlinearconv ]]; then
        [[ $2 =~ ^$digits$ ]] && (($2 <= elements_max)) && return
        echo "--size: expected elements in [1, $elements_max], got '$2'"
        return 1
    fi
    if [[ ! $2 =~ ^($digits)x($digits)x($digits)$ ]]; then
        echo "--size: expected CHANNELSxHEIGHTxWIDTH, such as 64x56x56, got '$2'"
        return 1
    fi
    channels=${BASH_REMATCH[1]} height=${BASH_REMATCH[2]} width=${BASH_REMATCH[3]}
    ((channels <= 512 && channels * height * width <= elements_max)) && return
    echo "--size: expected at most 512 channels and $elements_max elements, got '$2'"
    return 1
}

# describe OPERATOR SIZE FOLDER: sets the model, its attributes, inputs and output. Each of the
# inputs is "name datatype shape values", where values is a number for each variant, or a file.
describe()
{
    local channels=${2%%x*} file=$3
    local scale='0.5,0.25,0.125,0.0625' zero_point='128,120,112,104'
    local minimum='-64,-30,-14,-6.5' maximum='63.5,33.75,17.875,9.4375'
    attributes='' shape="[$2]" output="y FP32"
    case $1 in
    dequantize)
        model=onnx.DequantizeLinear version=25
        inputs=("x UINT8 [$2] $file/x" "x_scale FP32 [] $scale" "x_zero_point UINT8 [] $zero_point")
        ;;
    quantize)
        model=onnx.QuantizeLinear version=25 output="y UINT8"
        inputs=("x FP32 [$2] $file/x" "y_scale FP32 [] $scale" "y_zero_point UINT8 [] $zero_point")
        ;;
    directml)
        model=directml.ElementWiseDequantizeLinear version=62 output="OutputTensor FP32"
        attributes='"ScaleTensor.strides":[0],"ZeroPointTensor.strides":[0]'
        inputs=("InputTensor UINT8 [$2] $file/x" "ScaleTensor FP32 [$2] $scale"
            "ZeroPointTensor UINT8 [$2] $zero_point")
        ;;
    tensorflow)
        model=tensorflow.Dequantize version=1 output="output FP32"
        inputs=("input UINT8 [$2] $file/x" "min_range FP32 [] $minimum"
            "max_range FP32 [] $maximum")
        ;;
    qlinearconv)
        model=onnx.QLinearConv version=10 output="y UINT8" shape="[1,${2//x/,}]"
        attributes='"pads":[1,1,1,1]'
        inputs=("x UINT8 $shape $file/x" "x_scale FP32 [] 0.5" "x_zero_point UINT8 [] 128"
            "w INT8 [$channels,$channels,3,3] $file/w" "w_scale FP32 [] 0.25"
            "w_zero_point INT8 [] 0" "y_scale FP32 [] 1" "y_zero_point UINT8 [] $zero_point")
        ;;
    *) return 1 ;;
    esac
}

# write_request FORM V FILE: writes the request of variant V.
write_request()
{
    local separator='' line name datatype dims values file=$3 numbers bytes=()
    {
        printf '{"parameters":{%s' "$attributes"
        if [[ $1 = binary ]]; then
            printf '%s"binary_data_output":true' "${attributes:+,}"
        fi
        printf '},"inputs":['
        for line in "${inputs[@]}"; do
            read -r name datatype dims values <<<"$line"
            printf '%s{"name":"%s","datatype":"%s","shape":%s,' \
                "$separator" "$name" "$datatype" "$dims"
            separator=,
            if [[ ! -f $values ]]; then
                IFS=, read -r -a numbers <<<"$values"
                printf '"data":[%s]}' "${numbers[$2]-$values}"
            elif [[ $1 = json ]]; then
                printf '"data":['
                cat "$values"
                printf ']}'
            else
                printf '"parameters":{"binary_data_size":%d}}' "$(stat -c %s "$values")"
                bytes+=("$values")
            fi
        done
        printf ']}'
    } >"$file"
    json_bytes[$2]=''
    if [[ $1 = binary ]]; then
        json_bytes[$2]=$(stat -c %s "$file")
        cat "${bytes[@]}" >>"$file"
    fi
}

# write_answer FORM V FOLDER: writes the expected answer to variant V.
write_answer()
{
    local name=${output% *} datatype=${output#* }
    {
        printf '{"model_name":"%s","model_version":"%s","outputs":[' "$model" "$version"
        printf '{"name":"%s","datatype":"%s","shape":%s,' "$name" "$datatype" "$shape"
        if [[ $1 = json ]]; then
            printf '"data":['
            cat "$3/y.$2"
            printf ']}]}'
        else
            printf '"parameters":{"binary_data_size":%d}}]}' "$(stat -c %s "$3/y.$2")"
        fi
    } >"$3/head.$2"
    if [[ $1 = json ]]; then
        : >"$3/tail.$2"
    else
        cp "$3/y.$2" "$3/tail.$2"
    fi
}

make_requests()
{
    local form=$3 folder=$4 kind=dequantize file v channels height width
    case $1 in
    quantize) kind=quantize ;;
    qlinearconv) kind=conv ;;
    esac
    IFS=x read -r channels height width <<<"$2"
    awk -v kind="$kind" -v count="$2" -v channels="$channels" -v height="$height" \
        -v width="$width" -v form="$form" -v variants="$variants" -v folder="$folder" \
        -f "$here/numbers.awk" || return 1
    if [[ $form = binary ]]; then
        for file in "$folder"/[xw] "$folder"/y.*; do
            [[ -e $file ]] || continue
            basenc --decode --base16 "$file" >"$file.bytes" && mv "$file.bytes" "$file" || return 1
        done
    fi
    describe "$1" "$2" "$folder"
    for ((v = 0; v < variants; v++)); do
        write_request "$form" $v "$folder/request.$v"
        write_answer "$form" $v "$folder"
    done
    tail_bytes=$(stat -c %s "$folder/tail.0")
    answer_bytes=$(cat "$folder"/head.* "$folder"/tail.* | wc -c)
    answer_bytes=$((answer_bytes / variants + 200))
    rm -f "$folder"/[xw] "$folder"/y.*
}
