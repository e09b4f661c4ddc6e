#!/usr/bin/env python3
"""Messages over lossy paths: a table of docs/PERF.md. `spanwire-bench real` measures a path that fails.

As root: bench/paths.py [--spanwire target/release/spanwire] [--keep DIR] ...

Two hosts, a `spanwire switch` beside each, and four links between these, of 1 Gbit/s and 5 ms; a switch
selects the link by the 5-tuple. The link to a host has --mbit and a queue of 500 kB. Congestion control is the
default.

One message at a time while the links lose frames, at random or in bursts; the time until all of it is
acknowledged: p50, p99 and p99.9 in ms, compared with kernel TCP, whose receiver replies with a byte.
"""
import argparse
import array
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LINKS = 4
MACS = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
ADDRESSES = {"a": "10.78.0.1", "b": "10.78.0.2"}


def call(*args, **how):
    done = subprocess.run(args, capture_output=True, text=True, check=False, **how)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr or done.stdout}")
    return done.stdout


class Lab:
    """Hosts a and b, switches at both, and the links."""

    def __init__(self, spanwire, mbit):
        self.spanwire, self.mbit = spanwire, mbit
        self.folder = tempfile.mkdtemp(prefix="spanwire-paths-")
        self.name = f"swp{os.getpid()}"
        self.switches = []

    def ns(self, which):
        return f"{self.name}-{which}"

    def socket(self, side):
        return os.path.join(self.folder, f"{side}.sock")

    def veth(self, one, one_dev, other, other_dev):
        call("ip", "-n", self.ns(one), "link", "add", one_dev, "type", "veth",
             "peer", "name", other_dev, "netns", self.ns(other))
        for ns, dev in ((one, one_dev), (other, other_dev)):
            call("ip", "netns", "exec", self.ns(ns), "sysctl", "-qw",
                 f"net.ipv6.conf.{dev}.disable_ipv6=1")
            call("ip", "-n", self.ns(ns), "link", "set", dev, "up", "txqueuelen", "1000")
            call("ip", "netns", "exec", self.ns(ns), sys.executable, __file__, "--no-offloads", dev)

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_up(self):
        for which in ("a", "b", "sa", "sb"):
            call("ip", "netns", "add", self.ns(which))
        for side, other in (("a", "b"), ("b", "a")):
            self.veth(side, "sw0", f"s{side}", "host")
            call("ip", "-n", self.ns(side), "link", "set", "sw0", "address", MACS[side])
            call("ip", "-n", self.ns(side), "addr", "add", f"{ADDRESSES[side]}/24", "dev", "sw0")
            call("ip", "-n", self.ns(side), "link", "set", "lo", "up")
        for side, other in (("a", "b"), ("b", "a")):
            call("ip", "-n", self.ns(side), "neigh", "replace", ADDRESSES[other], "lladdr",
                 MACS[other], "dev", "sw0", "nud", "permanent")
        for link in range(1, LINKS + 1):
            self.veth("sa", f"l{link}", "sb", f"l{link}")
        for side, other in (("a", "b"), ("b", "a")):
            self.start_switch(side, other)

    def start_switch(self, side, other):
        links = list(range(1, LINKS + 1))
        config = (f"seed = {ord(side)}\n[port.host]\nrate = '{self.mbit}Mbit'\n"
                  "queue.limit_bytes = '500kB'\n")
        config += "".join(f"[port.l{n}]\nrate = '1Gbit'\ndelay = '5ms'\n"
                          "queue.limit_bytes = '4MB'\n" for n in links)
        config += (f"[forwarding]\nlearning = false\nflood = false\nmacs = [\n"
                   f"  {{ mac = '{MACS[side]}', ports = [0] }},\n"
                   f"  {{ mac = '{MACS[other]}', ports = {links} }},\n]\n")
        path = os.path.join(self.folder, f"{side}.toml")
        with open(path, "w", encoding="utf-8") as out:
            out.write(config)
        self.switches.append(subprocess.Popen(
            ["ip", "netns", "exec", self.ns(f"s{side}"), self.spanwire, "switch",
             "--config", path, "--socket", self.socket(side)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        give_up = time.monotonic() + 10
        while not os.path.exists(self.socket(side)):
            if time.monotonic() > give_up or self.switches[-1].poll() is not None:
                raise RuntimeError(f"the switch at {side} does not start")
            time.sleep(0.02)

    def __exit__(self, *_):
        for switch in self.switches:
            switch.terminate()
            switch.wait()
        for which in ("a", "b", "sa", "sb"):
            subprocess.run(["ip", "netns", "del", self.ns(which)], check=False,
                           capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def set(self, *changes):
        for side in ("a", "b"):
            call(self.spanwire, "switch", "ctl", "--socket", self.socket(side), "set", *changes)

    def start(self, host, *args, spanwire=True):
        program = [self.spanwire] if spanwire else []
        return subprocess.Popen(["ip", "netns", "exec", self.ns(host), *program, *args],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, within=300):
    out, err = process.communicate(timeout=within)
    return process.returncode, out, err


LOSSES = {"none": [], "random": ["loss=1%"],
          # A burst begins with each 400th frame and is four frames long on average: 1 %.
          "bursts": ["burst_loss={enter='2500ppm',leave='25%',loss_good='0%',loss_bad='100%'}"]}
MESSAGE_WAYS = [("SR", []), ("SR 8,2", ["--ec", "8,2"]),
                ("SR 8,2 unolb", ["--ec", "8,2", "--lb", "unolb"])]


def loss(args):
    print(f"{'loss':<8} {'message':>8} {'':<15} {'n':>6} {'p50':>8} {'p99':>8} {'p99.9':>8}  ms", flush=True)
    with Lab(args.spanwire, args.mbit) as lab:
        for name, changes in LOSSES.items():
            if name not in args.losses.split(","):
                continue
            lab.set(*(f"port.l{n}.{change}" for n in range(1, LINKS + 1)
                      for change in changes + ([] if changes else ["loss=0%"])))
            for size in (int(kib) << 10 for kib in args.kib.split(",")):
                for way, more in MESSAGE_WAYS + [("TCP", None)]:
                    if args.only and way not in args.only.split("|"):
                        continue
                    try:
                        times = tcp(lab, args, size) if more is None else sr(lab, args, size, more)
                    except RuntimeError as why:
                        print(f"{name:<8} {size >> 10:>5} KiB {way:<15} {why}", flush=True)
                        continue
                    shown = " ".join(f"{1e3 * t:8.1f}" for t in times[1:])
                    print(f"{name:<8} {size >> 10:>5} KiB {way:<15} {times[0]:>6} {shown}", flush=True)
            if "burst_loss" in "".join(changes):
                lab.set(*(f"port.l{n}.burst_loss=none" for n in range(1, LINKS + 1)))


def sr(lab, args, size, more):
    """Messages by WRITE; n, p50, p99, p99.9 in seconds."""
    cc = args.cc.split()
    server = lab.start("b", "perf", "server", "--dev", "sw0", "--one-off", "--json", *cc)
    time.sleep(0.5)
    try:
        client = lab.start("a", "perf", "client", "--dev", "sw0", ADDRESSES["b"], "--lat", "--op",
                           "write", "--size", str(size), "-t", str(args.seconds), "--mode", "sr",
                           "--json", "-i", "0", *cc, *more)
        code, out, err = ended(client)
        if code:
            raise RuntimeError(f"perf client: {err}{out}")
        report = json.loads(out)
    finally:
        server.terminate()
        server.wait()
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
        with open(os.path.join(args.keep, f"{len(os.listdir(args.keep))}.json"), "w",
                  encoding="utf-8") as out:
            json.dump(report, out)
    row = report["perf"][0]
    return row["messages"], row["p50_us"] / 1e6, row["p99_us"] / 1e6, row["p999_us"] / 1e6


def tcp(lab, args, size):
    """The same over kernel TCP."""
    answering = lab.start("b", sys.executable, __file__, "--answer", "7000", spanwire=False)
    time.sleep(0.3)
    code, out, err = ended(lab.start("a", sys.executable, __file__, "--ask", "7000", str(size),
                                     str(args.seconds), spanwire=False))
    answering.terminate()
    answering.wait()
    if code:
        raise RuntimeError(f"TCP: {err}")
    times = sorted(json.loads(out))
    return len(times), *(times[min(len(times) - 1, int(len(times) * q))] for q in (0.5, 0.99, 0.999))


def answer(port):
    """Receives messages of one length from one client and replies to each with a byte."""
    with socket.create_server(("", port)) as listener:
        client, _ = listener.accept()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        header = client.recv(8, socket.MSG_WAITALL)
        if len(header) < 8:
            return
        size = struct.unpack("!Q", header)[0]
        place = memoryview(bytearray(size))
        while True:
            filled = 0
            while filled < size:
                got = client.recv_into(place[filled:])
                if got == 0:
                    return
                filled += got
            client.sendall(b"!")


def ask(port, size, seconds):
    """Sends messages one after the other and prints how long each took, in seconds."""
    give_up, times = time.monotonic() + 5, []
    while True:
        try:
            stream = socket.create_connection((ADDRESSES["b"], port), timeout=60)
            break
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
    with stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Reset on close: the port is reusable immediately, without TIME_WAIT.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.sendall(struct.pack("!Q", size))
        message, end = bytes(size), time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                stream.sendall(message)
                if stream.recv(1) != b"!":
                    raise RuntimeError("no answer")
            except TimeoutError:
                # The connection stalled; its time is a lower bound.
                end = began
            times.append(time.monotonic() - began)
    print(json.dumps(times))


def no_offloads(dev):
    """What `ethtool -K dev tx off tso off gso off` does; frames are copied as they are."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (0x17, 0x1F, 0x24):  # ETHTOOL_STXCSUM, _STSO, _SGSO
            value = array.array("I", [command, 0])
            request = struct.pack("16sP16x", dev.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, 0x8946, request)  # SIOCETHTOOL


def main():
    if sys.argv[1:2] == ["--no-offloads"]:
        return no_offloads(sys.argv[2])
    if sys.argv[1:2] == ["--answer"]:
        return answer(int(sys.argv[2]))
    if sys.argv[1:2] == ["--ask"]:
        return ask(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spanwire", default="target/release/spanwire")
    # Four processes share two cores: at higher rates their scheduling delay exceeds the measured
    # effect.
    parser.add_argument("--mbit", type=int, default=200, help="rate of what leads to a host")
    parser.add_argument("--cc", default="", help="more arguments, at both ends, as --cc='--cc none --window 240'")
    parser.add_argument("--only", help="names of ways, with | between")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--losses", default="none,random,bursts", help="which")
    parser.add_argument("--kib", default="64,1024,5120", help="sizes of messages")
    parser.add_argument("--keep", help="folder for reports")
    args = parser.parse_args()
    args.spanwire = os.path.abspath(args.spanwire)
    loss(args)


if __name__ == "__main__":
    main()
