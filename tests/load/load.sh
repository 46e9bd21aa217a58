#!/usr/bin/env bash
# Posts one operator to quantd at rising concurrency, checks every answer, and prints the rates and
# latencies: see load.sh --help. Needs bash 5, curl 7.84 or later, coreutils 8.31 and awk.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/load/requests.sh
. "$here/requests.sh"
# shellcheck source=tests/load/step.sh
. "$here/step.sh"

usage()
{
    cat <<'TEXT'
Usage: load.sh [OPTION]...
Posts one operator to quantd at rising concurrency and checks every byte of every answer.

  --operator NAME      dequantize, quantize, qlinearconv, directml or tensorflow (dequantize)
  --size SIZE          elements (1000); for qlinearconv CHANNELSxHEIGHTxWIDTH (16x28x28), through
                       as many 3x3 filters as there are channels
  --form FORM          json or binary (binary)
  --concurrency LIST   connections in use at a time, one step each ("1 2 4 8 16 32")
  --duration SECONDS   of posting in each step (5); checking comes on top
  --requests N         instead: so many requests in each step
  --url URL            of the server, such as http://host:8000
  --unix-socket PATH   of the server; without this and --url, it starts one of its own
  --server FILE        the program to start (build/quantd)
  --header 'NAME: V'   sent with every request; may be repeated
  --timeout SECONDS    for one answer (30)
  --processes N        how many curls share the connections (one for each CPU, 2 to 4)
  --out FOLDER         for load.csv, load.svg and a wrong answer, if there is one (build/load)
  --help               print this and exit

Exit status: 0 if every answer was right, 1 if not, 2 if the options or the server are not usable.
TEXT
}

die()
{
    echo "load.sh: $1" >&2
    exit 2
}

# ---- Options ------------------------------------------------------------------------------------

# positive NAME VALUE MAX
positive()
{
    if [[ ! $2 =~ ^[1-9][0-9]{0,6}$ ]] || (($2 > $3)); then
        die "$1: expected 1 to $3, got '$2'"
    fi
}

read_options()
{
    local name complaint
    while (($# > 0)); do
        name=$1
        case $name in
        --help) usage && exit 0 ;;
        --operator | --size | --form | --concurrency | --duration | --requests | --url | \
            --unix-socket | --server | --header | --timeout | --processes | --out) ;;
        *) die "expected an option that --help lists, got '$name'" ;;
        esac
        (($# > 1)) || die "$name: expected a value, got none"
        case $name in
        --operator) operator=$2 ;;
        --size) size=$2 ;;
        --form) form=$2 ;;
        --concurrency) read -r -a steps <<<"$2" ;;
        --duration) positive "$1" "$2" 3600 && duration=$2 ;;
        --requests) positive "$1" "$2" 1000000 && requests=$2 ;;
        --url) url=${2%/} ;;
        --unix-socket) unix_socket=$2 ;;
        --server) server=$2 ;;
        --header) curl_options+=(-H "$2") ;;
        --timeout) positive "$1" "$2" 3600 && timeout=$2 ;;
        --processes) positive "$1" "$2" 64 && processes=$2 ;;
        --out) out=$2 ;;
        esac
        shift 2
    done
    case $operator in
    dequantize | quantize | directml | tensorflow) size=${size:-1000} ;;
    qlinearconv) size=${size:-16x28x28} ;;
    *) die "--operator: expected one that --help lists, got '$operator'" ;;
    esac
    complaint=$(check_size "$operator" "$size") || die "$complaint"
    [[ $form = json || $form = binary ]] || die "--form: expected json or binary, got '$form'"
    ((${#steps[@]} > 0)) || die "--concurrency: expected numbers, got none"
    for name in "${steps[@]}"; do
        positive --concurrency "$name" 1000
    done
    if [[ -n $unix_socket && ! -S $unix_socket ]]; then
        die "--unix-socket: expected a socket, got '$unix_socket', which is none"
    fi
    case $url in
    *[{}]* | *//*/*[][]*) die "--url: expected one URL, without {} and [], got '$url'" ;;
    '' | http://?* | https://?*) ;;
    *) die "--url: expected http:// or https:// and a host, got '$url'" ;;
    esac
}

check_tools()
{
    local tool version
    for tool in awk basenc cmp curl timeout; do
        command -v "$tool" >/dev/null || die "expected $tool on the PATH, got nothing"
    done
    version=$(curl -q --version | awk 'NR == 1 { print $2 }')
    if ! printf '7.84\n%s\n' "$version" | sort -V -C; then
        die "expected curl 7.84 or later, which can print a header field, got $version"
    fi
}

# ---- The server ---------------------------------------------------------------------------------

start_server()
{
    local tries=0
    [[ -x $server ]] || die "expected a program at $server (run make), or --url or --unix-socket"
    : >"$work/listening"
    "$server" --listen 127.0.0.1:0 >"$work/listening" 2>"$work/log" &
    server_pid=$!
    until grep -q '^quantd listening on ' "$work/listening"; do
        kill -0 "$server_pid" 2>/dev/null || die "$server did not start: $(tail -n 1 "$work/log")"
        tries=$((tries + 1))
        ((tries < 100)) || die "$server did not say where it listens"
        sleep 0.1
    done
    url=$(sed -n 's/^quantd listening on //p' "$work/listening")
}

# Checks that the server is ready and answers each variant correctly. Otherwise a load run would
# only count errors that a single request already shows.
check_server()
{
    local status v place=${unix_socket:-$url}
    status=$(curl "${curl_options[@]}" -o "$work/answer" -w '%{http_code}' "$url/v2/health/ready" \
        2>"$work/curl.log") || die "nothing answers at $place: $(head -n 1 "$work/curl.log")"
    [[ $status = 200 ]] || die "$place is not ready: HTTP $status for /v2/health/ready"
    for ((v = 0; v < variants; v++)); do
        start_client 0 $v 1 1
        wait "${clients[@]}"
        clients=()
        status=$(cut -d '|' -f 1-2 "$work/records.0")
        if [[ $status != '200|0' ]]; then
            die "a single request to $place is already refused: HTTP ${status%|*}, $(
                head -c 300 "$work/answers/0.1" 2>/dev/null || cat "$work/curl.log")"
        fi
        check_client 0 $v 1
        sent_bytes[v]=$(cut -d '|' -f 5 "$work/records.0")
        [[ ! -s $work/errors ]] ||
            die "a single request to $place is already answered wrongly: see $out/wrong_answer"
        [[ -s $work/good ]] || die "the first answers could not be checked"
    done
}

clean_up()
{
    if ((${#clients[@]} > 0)); then
        kill "${clients[@]}" 2>/dev/null
    fi
    if [[ -n $server_pid ]]; then
        kill "$server_pid" 2>/dev/null
        wait "$server_pid" 2>/dev/null
    fi
    if [[ -n $work ]]; then
        rm -rf "$work"
    fi
}

# Thousands of small files a second are too many for a disk. The answers of a burst are therefore
# kept in memory, if twice as much memory as they take is free.
make_work_folder()
{
    local name most=1 place=$out free
    for name in "${steps[@]}"; do
        most=$((name > most ? name : most))
    done
    # An element takes 4 bytes of a binary answer, and seldom more than 9 in JSON.
    most=$((most * 9 * $(element_count "$size") + burst_bytes))
    free=$(df --output=avail -B 1 /dev/shm 2>/dev/null | tail -n 1)
    if [[ -w /dev/shm ]] && ((${free:-0} > 2 * most)); then
        place=/dev/shm
    fi
    work=$(mktemp -d "$place/quantd-load.$$.XXXXXX") || die "$place: no folder can be made in it"
    mkdir "$work/answers"
}

# ---- Showing it ---------------------------------------------------------------------------------

# show_progress CONCURRENCY GOOD: prints one line, which the next call overwrites; on a terminal
# only.
show_progress()
{
    [[ -t 2 ]] || return 0
    printf '\r\033[Kconcurrency %s: %d.%d s, %d right, %d errors' "$1" $((load_us / 1000000)) \
        $((load_us / 100000 % 10)) "$2" "$(wc -l <"$work/errors")" >&2
}

# summarize CONCURRENCY: prints the step as a CSV line. Percentiles are nearest ranks over right
# answers. A stage's share is that of the server's total time. client_percent says how busy a curl
# process was.
summarize()
{
    sort -t '|' -k 1,1n "$work/good" | awk -F '|' -v concurrency="$1" -v us="$load_us" \
        -v client_us="$client_us" -v errors="$(sort "$work/errors" | uniq -c |
            awk '{ printf "%s%s:%d", separator, $2, $1; separator = " " }')" '
        function rank(share,    i) {
            i = int(count * share)
            return 1000 * seconds[i < count * share ? i + 1 : i < 1 ? 1 : i]
        }
        function percent(stage) { return sum["total"] > 0 ? 100 * sum[stage] / sum["total"] : 0 }
        {
            seconds[++count] = $1
            fields = split($2, stage, /[;=, ]+/) # receive dur 0.1 queue dur 0.1 ...
            for (i = 1; i + 2 <= fields; i += 3)
                sum[stage[i]] += stage[i + 2]
        }
        END {
            us = us ? us : 1
            printf "%d,%.1f,%.3f,%.3f,%.3f,%.3f,", concurrency, count * 1e6 / us, rank(0.5),
                rank(0.9), rank(0.99), rank(1)
            printf "%.3f,%.1f,%.1f,%.1f,%.1f,%.1f,", sum["total"] / (count ? count : 1),
                percent("receive"), percent("queue"), percent("decode"), percent("compute"),
                percent("encode")
            printf "%.0f,%d,%s\n", 100 * client_us / us, count, errors
        }'
}

csv_head=concurrency,requests_per_s,p50_ms,p90_ms,p99_ms,max_ms,server_ms,receive_percent,
csv_head+=queue_percent,decode_percent,compute_percent,encode_percent,client_percent,right,errors

show_head()
{
    local json=${json_bytes[0]} amount="$duration s"
    if ((requests > 0)); then
        amount="$requests requests"
    fi
    echo "$operator $size, $form, to ${unix_socket:-$url}, $amount for each concurrency"
    if [[ -z $unix_socket && -z $server_pid ]]; then
        echo "the same with wrk: wrk -t1 -c4 -d5 --latency -s $here/post.lua $infer_url" \
            "-- $out/request.$form${json:+ $json}"
    fi
    printf '\n%31s latency in ms        | mean in the server, and its parts in %%        |\n' ''
    printf '%5s %9s %8s %8s %8s %8s | %8s %7s %5s %6s %7s %6s | %6s %s\n' conc req/s p50 p90 p99 \
        max ms receive queue decode compute encode client errors
}

# show_row LINE: prints a CSV line as a row of the table.
show_row()
{
    awk -F , '{
        printf "%5d %9.1f %8.3f %8.3f %8.3f %8.3f | ", $1, $2, $3, $4, $5, $6
        printf "%8.3f %7.0f %5.0f %6.0f %7.0f %6.0f | ", $7, $8, $9, $10, $11, $12
        printf "%5d%% %s\n", $13, $15 == "" ? "0" : $15
    }' <<<"$1"
}

# ---- A run --------------------------------------------------------------------------------------

operator=dequantize size='' form=binary steps=(1 2 4 8 16 32) duration=5 requests=0 timeout=30
url='' unix_socket='' server=${B:-$root/build}/quantd out=$root/build/load processes=$(nproc)
processes=$((processes < 2 ? 2 : processes < 4 ? processes : 4)) work=''
# No .curlrc, no proxy, and no "Expect: 100-continue", which would cost a round trip.
curl_options=(-q -sS --noproxy '*' --http1.1 -H 'Expect:')
clients=() sent_bytes=() server_pid='' burst=0
read_options "$@"
check_tools
curl_options+=(--max-time "$timeout")

mkdir -p "$out" 2>/dev/null
[[ -d $out && -w $out ]] || die "--out: expected a folder to write to, got '$out'"
rm -f "$out"/load.csv "$out"/load.svg "$out"/wrong_answer "$out"/wrong_answer.expected
trap clean_up EXIT
trap 'exit 1' HUP INT PIPE TERM
make_work_folder
make_requests "$operator" "$size" "$form" "$work" || die "$work: the requests were not written"
if [[ -n $unix_socket ]]; then
    curl_options+=(--unix-socket "$unix_socket")
    url=${url:-http://localhost}
elif [[ -z $url ]]; then
    start_server
fi
infer_url=$url/v2/models/$model/versions/$version/infer
: >"$work/good"
: >"$work/errors"
check_server
cp "$work/request.0" "$out/request.$form"

show_head
echo "$csv_head" >"$out/load.csv"
bad=0
for concurrency in "${steps[@]}"; do
    run_step "$concurrency"
    line=$(summarize "$concurrency")
    echo "$line" >>"$out/load.csv"
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
    show_row "$line"
    bad=$((bad + $(wc -l <"$work/errors")))
    if [[ ! -s $work/good ]]; then
        echo "load.sh: no right answer at concurrency $concurrency, so this is the end" >&2
        break
    fi
done

printf '\nwritten: %s\n' "$out/load.csv"
"$here/plot.sh" "$out/load.csv" "$out/load.svg" "quantd: $operator $size, $form"
if ((bad > 0)); then
    echo "load.sh: $bad answers were wrong, refused or lost" >&2
    exit 1
fi
