#!/usr/bin/env bash
# plot.sh CSV SVG TITLE: draws latency and throughput against concurrency with gnuplot.
set -u
csv=$1 svg=$2 title=$3
if ! command -v gnuplot >/dev/null; then
    echo "not drawn: $svg needs gnuplot (on Debian: apt-get install gnuplot-nox)"
    exit 0
fi
if (($(wc -l <"$csv") < 3)); then
    echo "not drawn: $svg needs two concurrencies or more"
    exit 0
fi
gnuplot <<GNUPLOT || exit 1
set terminal svg size 760,420 font "sans-serif,13" background "white"
set output "$svg"
set title "$title" noenhanced
set datafile separator ","
set key outside top center horizontal
set grid ytics lc rgb "#dddddd"
set border 11
set style data linespoints
set logscale x 2
set logscale y 10
set xlabel "connections in use at a time"
set ylabel "latency in ms"
set y2label "right answers per second"
set ytics nomirror
set y2tics
set y2range [0:*]
plot "$csv" skip 1 using 1:2 axes x1y2 lw 2 pt 7 lc rgb "#1b7837" title "answers/s", \\
     "" skip 1 using 1:3 lw 2 pt 5 lc rgb "#2166ac" title "p50", \\
     "" skip 1 using 1:4 lw 2 pt 9 lc rgb "#f4a582" title "p90", \\
     "" skip 1 using 1:5 lw 2 pt 11 lc rgb "#b2182b" title "p99"
GNUPLOT
echo "written: $svg"
