#!/usr/bin/env python3
"""Fairness of processes that share a bottleneck of `spanwire switch`: the table of docs/PERF.md.

As root: bench/shared_bottleneck.py [--spanwire target/release/spanwire] [--seconds 10]
         [--rates 200,500,1000] [--only auto,unocc] [--keep DIR]

Each client has a host of its own, each server a macvlan on the one port of the bottleneck. Prints
a line for each run: Mbit/s of each client over the last half of the common time, their sum,
Jain's index, and the queue in kB (mean, median, most). The input of `spanwire plot` stays in DIR. Two
processes start 2 s apart, four 1 s.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

LAB = "shared-bottleneck"
# Thresholds are in bandwidth-delay products of the path without a queue.
RTT_S = 0.0041


def phantom(bdp):
    return ("[port.a.queue.phantom]\n"
            f"size_bytes = {bdp}\nkmin_bytes = {bdp // 4}\nkmax_bytes = {bdp * 3 // 4}\n")


def red(bdp):
    return f"[port.a.queue.ecn]\nkmin_bytes = {bdp // 5}\nkmax_bytes = {bdp}\npmax = '20%'\n"


# Nothing is set but the algorithm: path and hosts calibrate it.
RUNS = [("auto", "sr", lambda _: "", 2), ("auto", "sr", lambda _: "", 4),
        ("unocc", "sr", phantom, 2), ("unocc", "sr", phantom, 4),
        ("swift", "sr", lambda _: "", 2), ("dcqcn", "rc", red, 2), ("dcqcn", "sr", red, 2)]


def call(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True)


def set_up(spanwire, mbit, marks, n, folder):
    line = "delay = '2ms'\nqueue.limit_bytes = '8MB'\n"
    bdp = int(mbit * 1e6 / 8 * RTT_S)
    config = f"seed = 3\n[port.a]\nrate = '{mbit}Mbit'\n{line}{marks(bdp)}"
    config += "".join(f"[port.c{i}]\nrate = '10Gbit'\n{line}" for i in range(1, n + 1))
    path = os.path.join(folder, "switch.toml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(config)
    call(spanwire, "lab", "up", "--name", LAB, "--switch", path)
    for i in range(1, n + 1):
        ns, link = f"{LAB}-s{i}", f"m{i}"
        call("ip", "netns", "add", ns)
        call("ip", "-n", f"{LAB}-a", "link", "add", "link", "sw0", "name", link,
             "type", "macvlan", "mode", "private")
        call("ip", "-n", f"{LAB}-a", "link", "set", link, "netns", ns)
        call("ip", "-n", ns, "link", "set", link, "name", "sw0")
        call("ip", "-n", ns, "addr", "add", f"10.77.0.{100 + i}/24", "dev", "sw0")
        call("ip", "-n", ns, "link", "set", "sw0", "up")


def take_down(spanwire, n):
    for i in range(1, n + 1):
        subprocess.run(["ip", "netns", "del", f"{LAB}-s{i}"], check=False, capture_output=True)
    subprocess.run([spanwire, "lab", "down", "--name", LAB], check=False, capture_output=True)


def measure(spanwire, name, mode, n, seconds, folder):
    """Runs servers, clients and the sampler; the clients' reports and the switch's samples."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(["ip", "netns", "exec", f"{LAB}-s{i}", spanwire,
                                 "perf", "server", "--dev", "sw0"], **quiet)
               for i in range(1, n + 1)]
    files, apart = [], 2 if n <= 2 else 1
    try:
        time.sleep(1)
        samples = os.path.join(folder, "switch.jsonl")
        with open(samples, "w", encoding="utf-8") as out:
            started.append(subprocess.Popen(
                [spanwire, "switch", "ctl", "--lab", LAB, "--json", "show", "--interval", "0.05"],
                stdout=out, stderr=subprocess.DEVNULL))
        clients = []
        for i in range(n):
            files.append(os.path.join(folder, f"{i + 1}.json"))
            args = [spanwire, "lab", "exec", "--name", LAB, f"c{i + 1}", "--", spanwire, "perf",
                    "client", "--dev", "sw0", f"10.77.0.{101 + i}", "-i", "0.1", "--json",
                    "-t", str(seconds - apart * i), "--mode", mode, "--cc", name]
            with open(files[-1], "w", encoding="utf-8") as out:
                clients.append(subprocess.Popen(args, stdout=out, stderr=subprocess.DEVNULL))
            time.sleep(apart)
        for client in clients:
            client.wait(timeout=60)
    finally:
        for process in started:
            process.terminate()
            process.wait()
    reports = []
    for path in files:
        with open(path, encoding="utf-8") as text:
            reports.append(json.load(text))
    with open(samples, encoding="utf-8") as text:
        # The last line may have been cut short.
        return reports, [json.loads(line) for line in text if line.endswith("}\n")]


def row(reports, samples):
    first = max(r["start_unix_s"] for r in reports)
    last = min(r["start_unix_s"] + r["intervals"][-1]["end_s"] for r in reports)
    half = (first + last) / 2
    rates = []
    for r in reports:
        within = [1e3 * i["gbps"] for i in r["intervals"]
                  if half <= r["start_unix_s"] + i["end_s"] <= last]
        rates.append(sum(within) / len(within))
    queue = sorted(s["ports"][0]["queue_bytes"] / 1e3 for s in samples
                   if half <= s["at_unix_s"] <= last)
    jain = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))
    each = " ".join(f"{rate:6.1f}" for rate in rates)
    return (f"{each:<28} {sum(rates):7.1f}  {jain:.3f}  "
            f"{sum(queue) / len(queue):5.0f} {queue[len(queue) // 2]:5.0f} {queue[-1]:5.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spanwire", default="target/release/spanwire")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rates", default="200,500,1000", help="Mbit/s")
    parser.add_argument("--only", help="algorithms, with commas between")
    parser.add_argument("--keep", help="folder for reports and samples")
    args = parser.parse_args()
    spanwire = os.path.abspath(args.spanwire)
    for mbit in map(int, args.rates.split(",")):
        for name, mode, marks, n in RUNS:
            if args.only and name not in args.only.split(","):
                continue
            title = f"{name}-{mode}-{mbit}-{n}"
            with tempfile.TemporaryDirectory() as passing:
                folder = os.path.join(args.keep, title) if args.keep else passing
                os.makedirs(folder, exist_ok=True)
                try:
                    set_up(spanwire, mbit, marks, n, folder)
                    found = measure(spanwire, name, mode, n, args.seconds, folder)
                    print(f"{title:<20} {row(*found)}", flush=True)
                finally:
                    take_down(spanwire, n)


if __name__ == "__main__":
    main()
