#!/bin/bash
# Runs the clients on the GPU of this machine, from the folder that `scripts/clients-gpu` has filled, and prints tables in Markdown.
cd "$(dirname "$0")" || exit 1
programs=$(mktemp -d)
for program in *.gz; do
    case $program in
        *.trace.gz) ;;
        *) gzip -dc "$program" > "$programs/${program%.gz}" && chmod +x "$programs/${program%.gz}" ;;
    esac
done
# CUDA's libraries are those of the toolkit, or of Python's packages.
for library in libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcurand.so.10 libnvrtc.so.13; do
    found=$(ldconfig -p | sed -n "s/.*$library .*=> //p" | head -1)
    [ -n "$found" ] || found=$(find / -xdev -name "$library" 2>/dev/null | head -1)
    [ -n "$found" ] && export LD_LIBRARY_PATH="$(dirname "$found"):$LD_LIBRARY_PATH"
done
has() { [ -x "$programs/$1" ]; }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if has cudarc-figures; then
    echo; echo "## cudarc: host time"; echo
    "$programs/cudarc-figures" pairs
    echo; echo "## cudarc: recorded programs"; echo
    echo "| program | rounds | live, GiB | taken over live, before | after | µs a pair, before | after | results |"
    echo "|---|---|---|---|---|---|---|---|"
    for rounds in 1 3; do
        for trace in *.trace.gz; do gzip -dc "$trace" | "$programs/cudarc-figures" trace "${trace%.trace.gz}" $rounds 2>&1; done
    done
fi
if has openvm-figures-before && has openvm-figures-after; then
    echo; echo "## openvm-cuda-common: recorded programs"; echo
    echo "| program | rounds | | live, GiB | taken over live | µs a pair |"
    echo "|---|---|---|---|---|---|"
    for rounds in 1 3; do
        for trace in *.trace.gz; do
            for side in before after; do
                echo "| ${trace%.trace.gz} | $rounds | $(gzip -dc "$trace" | "$programs/openvm-figures-$side" $rounds 2>&1 | tail -1) |"
            done
        done
    done
fi
if has candle-figures; then
    echo; echo "## candle"; echo
    for way in driver pool "driver stream" "pool stream"; do "$programs/candle-figures" $way 2>&1; done
fi
# Each test in a process of its own: one that spoils the context spoils no other.
for client in cudarc openvm; do
    has $client-tests-before && has $client-tests-after || continue
    echo; echo "## $client: its own tests"
    for side in before after; do
        tests=$programs/$client-tests-$side
        for test in $("$tests" --list --format terse | sed -n 's/: test$//p'); do
            output=$(timeout 60 "$tests" --exact "$test" 2>&1)
            if [[ $output == *"test result: ok. 1 passed"* ]]; then
                echo "$test" >> "$programs/passed-$side"
            elif [[ $output != *" 1 ignored"* ]]; then
                echo "$test" >> "$programs/failed-$side"
                [ $side = before ] || grep -qx "$test" "$programs/failed-before" 2>/dev/null || { echo; echo "$test fails with the pool:"; echo "$output" | grep -A4 panicked; }
            fi
        done
    done
    for side in before after; do
        touch "$programs/passed-$side" "$programs/failed-$side"
        echo; echo "$side: $(wc -l < "$programs/passed-$side") passed, $(wc -l < "$programs/failed-$side") failed:" $(cat "$programs/failed-$side")
    done
    rm "$programs"/passed-* "$programs"/failed-*
done
rm -rf "$programs"
if [ -x cubecl/run-on-gpu ]; then
    echo; echo "## cubecl"; echo
    cubecl/run-on-gpu
fi
