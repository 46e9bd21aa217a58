# shellcheck shell=bash
# One step of a load run: posts at one concurrency, and checks every answer. Sourced by load.sh,
# which sets the variables that are read here.
#
# A step is a series of bursts of about a second. In a burst, a few curl processes together keep
# `concurrency` connections busy. Each process posts one variant of the request. All answers are
# checked between bursts, which no measurement includes. run_step leaves in $work
#
#   good     a line for each right answer: "seconds|Server-Timing"
#   errors   a line for each other answer: what was wrong with it
#
# and sets load_us (how long posting took) and client_us (a curl process' mean CPU time meanwhile).

# shellcheck disable=SC2154 # load.sh and requests.sh set these
burst_us=1000000
burst_bytes=$((256 << 20))
burst_requests=8000

# An awk program that removes the fields that differ in each answer. RS puts each answer into a
# record of its own.
# shellcheck disable=SC2016 # awk's $
without_times='
    BEGIN { RS = "[{]\"model_name\"" }
    NR > 1 {
        number = "[0-9]+,\""
        sub("\"parameters\":[{]\"receive_us\":" number "queue_us\":" number "decode_us\":" number \
            "compute_us\":[0-9]+,\"kernel\":\"[^\"]*\"[}],", "")
        printf "{\"model_name\"%s", $0
    }
    NR == 1 { printf "%s", $0 }'

# same V FILE...: succeeds if all of these answers equal the expected one, byte for byte. The
# answers are compared as one concatenation, which alone would not notice bytes of one answer in the
# next. So each answer must also begin with a text that occurs nowhere else in the expected one, and
# end with as many bytes of tensors.
same()
{
    local v=$1 i heads=() tails=()
    shift
    cmp -s <(head -q -c 13 -- "$@") <(printf '{"model_name"%.0s' "$@") || return
    for ((i = 0; i < $#; i++)); do
        heads[i]=$work/head.$v tails[i]=$work/tail.$v
    done
    cmp -s <(head -q -c "-$tail_bytes" -- "$@" | awk "$without_times") <(cat "${heads[@]}") &&
        cmp -s <(tail -q -c "$tail_bytes" -- "$@") <(cat "${tails[@]}")
}

# start_client I V COUNT MAX: starts a curl that posts variant V, COUNT times, on at most MAX
# connections. --parallel-immediate and --http1.1 let curl open all connections at once instead of
# waiting for HTTP/2.
start_client()
{
    local json=${json_bytes[$2]} fields='%{http_code}|%{exitcode}|%{time_total}|%{size_download}'
    fields+='|%{size_request}|%{filename_effective}|%header{inference-header-content-length}'
    fields+='|%header{server-timing}\n'
    timeout "$((duration + 2 * timeout))" \
        curl "${curl_options[@]}" --no-progress-meter --parallel --parallel-immediate \
        --parallel-max "$4" --data-binary "@$work/request.$2" \
        ${json:+-H "Inference-Header-Content-Length: $json"} \
        -o "$work/answers/$1.#1" -w "$fields" "$infer_url#[1-$3]" \
        >"$work/records.$1" 2>>"$work/curl.log" &
    clients[$1]=$!
}

# sort_records I V COUNT: splits a client's records into answers that may be right (in candidates.I,
# as "file|seconds|Server-Timing") and answers that are certainly wrong (errors). If a connection
# closes before its answer, curl repeats the request by itself. Only the number of bytes that it has
# sent shows that. The first answer counts as lost nevertheless.
sort_records()
{
    awk -F '|' -v count="$3" -v tail="$tail_bytes" -v json="${json_bytes[$2]}" \
        -v sent="${sent_bytes[$2]-}" -v candidates="$work/candidates.$1" '
        BEGIN {
            name[7] = "refused"; name[28] = "timeout"
            name[18] = name[52] = name[55] = name[56] = "cut"
            printf "" >candidates
        }
        {
            if (sent != "" && $5 > sent)
                print "lost"
            if ($2 != 0)
                print ($2 in name) ? name[$2] : "curl-" $2
            else if ($1 != 200)
                print $1
            else if (json == "" ? $7 != "" : $4 - $7 != tail)
                print "wrong"
            else
                print $6 "|" $3 "|" $8 >candidates
        }
        END {
            for (; count > NR; count--)
                print "lost"
        }' "$work/records.$1" >>"$work/errors"
}

# check_client I V COUNT: checks a client's answers, and adds them to good and errors.
check_client()
{
    local files=() file rest
    sort_records "$@"
    mapfile -t files < <(cut -d '|' -f 1 "$work/candidates.$1")
    if ((${#files[@]} > 0)) && same "$2" "${files[@]}"; then
        cut -d '|' -f 2- "$work/candidates.$1" >>"$work/good"
        return
    fi
    while IFS='|' read -r file rest; do
        if same "$2" "$file"; then
            echo "$rest" >>"$work/good"
        else
            echo wrong >>"$work/errors"
            cp "$file" "$out/wrong_answer"
            cat "$work/head.$2" "$work/tail.$2" >"$out/wrong_answer.expected"
        fi
    done <"$work/candidates.$1"
}

# child_us VARIABLE: sets the variable to the CPU time of all children so far, in microseconds. (In
# a pipe, `times` would report another shell's children.)
child_us()
{
    times >"$work/times"
    printf -v "$1" %s \
        "$(awk -F '[ms ]+' 'NR == 2 { print int(($1 * 60 + $2 + $3 * 60 + $4) * 1e6) }' \
            "$work/times")"
}

# run_burst CONCURRENCY COUNT: posts COUNT requests and checks the answers. Sets took_us, and adds
# to client_us.
run_burst()
{
    local i many=$(($1 < processes ? $1 : processes)) before_us after_us
    many=$((many < $2 ? many : $2))
    burst=$((burst + 1))
    child_us before_us
    took_us=${EPOCHREALTIME/./}
    for ((i = 0; i < many; i++)); do
        start_client $i $(((burst + i) % variants)) $((($2 + i) / many)) $((($1 + i) / many))
    done
    wait "${clients[@]}"
    took_us=$((${EPOCHREALTIME/./} - took_us))
    child_us after_us
    client_us=$((client_us + (after_us - before_us) / many))
    clients=()
    for ((i = 0; i < many; i++)); do
        check_client $i $(((burst + i) % variants)) $((($2 + i) / many))
    done
    find "$work/answers" -type f -delete
}

# run_step CONCURRENCY: runs bursts until $requests are posted or, if that is 0, for $duration
# seconds. In the latter case the first burst is a warm-up: its answers are checked, but its times
# are not counted.
run_step()
{
    local posted=0 good=0 before count=$((4 * $1)) goal_us
    local most=$((burst_bytes / answer_bytes))
    most=$((most < burst_requests ? most : burst_requests))
    most=$((most > $1 ? most : $1))
    : >"$work/good"
    : >"$work/errors"
    load_us=0 client_us=0
    if ((requests == 0)); then
        count=$((count < most ? count : most))
        run_burst "$1" $count
        [[ -s $work/good ]] || return 0
        : >"$work/good"
        client_us=0
    fi
    while ((requests > 0 ? posted < requests : load_us < duration * 1000000)); do
        goal_us=$burst_us
        if ((requests == 0 && duration * 1000000 - load_us < goal_us)); then
            goal_us=$((duration * 1000000 - load_us))
        fi
        if ((posted > 0 || requests == 0)); then # at the last burst's rate, at most 8 times as many
            count=$((8 * took_us < goal_us ? 8 * count : count * goal_us / took_us))
        fi
        count=$((count > $1 ? count : $1))
        count=$((count < most ? count : most))
        if ((requests > 0 && count > requests - posted)); then
            count=$((requests - posted))
        fi
        run_burst "$1" $count
        posted=$((posted + count)) load_us=$((load_us + took_us))
        before=$good
        good=$(wc -l <"$work/good")
        if ((good + $(wc -l <"$work/errors") < posted)); then
            die "the answers to $posted requests could not all be checked"
        fi
        show_progress "$1" "$good"
        ((good > before)) || return 0 # no answer of this burst was right
    done
}
