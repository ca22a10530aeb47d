#!/usr/bin/env python3
"""What a running `lily serve` does under load: streams at once, a long prompt beside a running answer, first tokens and gaps.

    lily serve MODEL --port 8000 &
    bench/serve_load.py http://127.0.0.1:8000 [--streams 1,4] [--tokens 48] [--long 2000] [--idle 60,3600] [--soak 1000]

--idle: the first token of a new prompt of a few words after so many seconds without a request. --soak: so many requests, as many at
once as the largest of --streams, and what the server has resident meanwhile. Prints one table of each. Prompts are different every
time, so that nothing comes from the cache. Standard library alone.
"""
import argparse
import json
import os
import random
import statistics
import threading
import time
import urllib.request


def words(n):
    return " ".join(f"w{random.randrange(10**6)}" for _ in range(n))


class Stream(threading.Thread):
    """One answer; notes when each piece came (a token each, but for those that end inside a character)."""

    def __init__(self, base, prompt, tokens):
        super().__init__()
        self.request = urllib.request.Request(
            f"{base}/v1/completions", json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 1, "stream": True,
                                                  "stream_options": {"include_usage": True}}).encode(),
            {"Content-Type": "application/json"})
        self.times, self.usage, self.timings = [], {}, {}

    def run(self):
        self.begun = time.monotonic()
        with urllib.request.urlopen(self.request) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                piece = json.loads(line[6:])
                if piece.get("usage"):
                    self.usage, self.timings = piece["usage"], piece["timings"]
                elif piece.get("choices") and piece["choices"][0]["text"]:
                    self.times.append(time.monotonic())

    def gaps(self):
        return [b - a for a, b in zip(self.times, self.times[1:])]


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p / 100 * len(values)))] if values else float("nan")


def resident(base):
    """GB of the server that are in memory, mapped weights counted."""
    with urllib.request.urlopen(f"{base}/metrics") as answer:
        return next(float(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith("lily_resident_bytes")) / 1e9


def idle(base, waits):
    print(f"{'idle s':>8} {'first token s':>14} {'resident GB':>12}")
    for seconds in waits:
        time.sleep(seconds)
        before = resident(base)
        (stream,) = run(base, [words(4)], 2)
        print(f"{seconds:8} {stream.times[0] - stream.begun:14.2f} {before:12.2f}", flush=True)


def soak(base, requests, at_once, prompt_words, tokens):
    print(f"{'requests':>8} {'first p50':>10} {'p99 s':>7} {'resident GB':>12}")
    first, done, shown = [], 0, 0
    while done < requests:
        streams = run(base, [words(prompt_words) for _ in range(at_once)], tokens)
        first += [s.times[0] - s.begun for s in streams]
        done += at_once
        if done - shown >= requests / 8 or done >= requests:
            print(f"{done:8} {percentile(first, 50):10.2f} {percentile(first, 99):7.2f} {resident(base):12.3f}", flush=True)
            first, shown = [], done


def run(base, prompts, tokens):
    streams = [Stream(base, prompt, tokens) for prompt in prompts]
    for s in streams:
        s.start()
    for s in streams:
        s.join()
    return streams


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--streams", default="1,2,4")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--words", type=int, default=4, help="of each prompt")
    parser.add_argument("--long", type=int, default=0, help="words of a prompt that is read beside a running answer; 0: none")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--idle", help="seconds to wait, one after the other")
    parser.add_argument("--soak", type=int, default=0, help="requests; 0: none")
    a = parser.parse_args()
    run(a.base, [words(4)], 8)  # warm
    print(f"{'streams':>8} {'tokens/s':>9} {'of one':>7} {'first p50':>10} {'p99 s':>7} {'gap p50':>8} {'p99 s':>7}")
    one = None
    for n in map(int, a.streams.split(",")):
        rates, first, gaps = [], [], []
        for _ in range(a.reps):
            streams = run(a.base, [words(a.words) for _ in range(n)], a.tokens)
            # From when all answer to when the first one ends.
            begin, end = max(s.times[0] for s in streams), min(s.times[-1] for s in streams)
            rates.append(sum(1 for s in streams for t in s.times if begin < t <= end) / (end - begin))
            first += [s.times[0] - s.begun for s in streams]
            gaps += [g for s in streams for g in s.gaps()]
        rate = statistics.median(rates)
        one = one or rate
        print(f"{n:8} {rate:9.1f} {rate / one if one else float('nan'):7.2f} {percentile(first, 50):10.2f} {percentile(first, 99):7.2f} {percentile(gaps, 50):8.3f} {percentile(gaps, 99):7.3f}")
    if a.idle:
        idle(a.base, list(map(int, a.idle.split(","))))
    if a.soak:
        soak(a.base, a.soak, max(map(int, a.streams.split(","))), a.words, a.tokens)
    if not a.long:
        return
    runner = Stream(a.base, words(4), 4000)
    runner.start()
    while len(runner.times) < 16:
        time.sleep(0.05)
    begun, alone = time.monotonic(), runner.gaps()
    reader = Stream(a.base, words(a.long), 1)
    reader.start()
    reader.join()
    ended = time.monotonic()
    during = sum(1 for t in runner.times if begun < t <= ended) / (ended - begun)
    before = 1 / statistics.median(alone)
    print(f"beside a cold prompt of {reader.usage['prompt_tokens']} tokens, read in {ended - begun:.1f} s, a running answer goes at {during:.1f} of "
          f"{before:.1f} tokens/s: {100 * during / before:.0f} %; longest gap {max(runner.gaps()):.2f} s")
    # Leaving ends it: the server cancels what nobody reads.
    os._exit(0)


if __name__ == "__main__":
    main()
