#!/usr/bin/env python3
"""What the proxy costs: pgbench direct, through HAProxy, PgBouncer, a bare tokio relay, and pgassay (recording).

All targets are measured in interleaved rounds of one run, so that a noisy machine is noisy for all of them.
Prints throughput and latency as ratios to direct, CPU seconds per 100,000 queries of each proxy process, and
system calls per round trip. Everything listens on the loopback address and ends with this script, however it ends.

    tests/bench/proxy.py [--quick] [--rounds N] [--seconds S] [--json FILE]
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIBC = ctypes.CDLL(None)


def leash():
    """In a child: it gets an interrupt when this script dies, even by a kill -9."""
    PR_SET_PDEATHSIG = 1
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def find(name, *places):
    for place in [*places, shutil.which(name) or "", f"/usr/sbin/{name}"]:
        if place and Path(place).exists():
            return str(place)
    return None


def postgres_bin():
    if os.environ.get("PGASSAY_PG_BIN"):
        return Path(os.environ["PGASSAY_PG_BIN"])
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    if not found:
        sys.exit("no PostgreSQL was found; set PGASSAY_PG_BIN")
    return found[-1]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def cpu_seconds(pid):
    """Time that the threads of a process have run, in user code and in the kernel (exact, unlike ticks)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total / 1e9


class Bench:
    def __init__(self, options):
        self.options = options
        self.dir = Path(tempfile.mkdtemp(prefix="pgassay-bench-"))
        os.chmod(self.dir, 0o755)
        self.processes = []
        self.targets = {}
        self.user = {"user": "postgres"} if os.getuid() == 0 else {}

    def spawn(self, name, command, **more):
        log = open(self.dir / f"{name}.log", "w")
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=leash, **more)
        self.processes.append(process)
        return process

    def start(self):
        pg = postgres_bin()
        self.pgbench = str(pg / "pgbench")
        data = self.dir / "server"
        data.mkdir()
        if self.user:
            shutil.chown(data, "postgres", "postgres")
        subprocess.run([pg / "initdb", "-D", data / "data", "-U", "postgres", "-A", "trust", "--no-sync"],
                       check=True, stdout=subprocess.DEVNULL, cwd=data, **self.user)
        port = free_port()
        self.spawn("postgres", [pg / "postgres", "-D", data / "data", "-p", str(port), "-k", data,
                                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                                "-c", "max_connections=200", "-c", "synchronous_commit=off"], cwd=data, **self.user)
        wait_for(port)
        time.sleep(1)
        self.server = port
        self.targets["direct"] = (port, None)
        subprocess.run([self.pgbench, "-i", "-q", "-s", "10", *self.address(port)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start_haproxy()
        self.start_pgbouncer()
        self.start_ours()

    def address(self, port):
        return ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]

    def start_haproxy(self):
        program = find("haproxy")
        if not program:
            return print("haproxy is not installed: left out")
        port = free_port()
        config = self.dir / "haproxy.cfg"
        config.write_text(f"""
global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen pg
  bind 127.0.0.1:{port}
  server pg 127.0.0.1:{self.server}
""")
        process = self.spawn("haproxy", [program, "-db", "-f", config])
        wait_for(port)
        self.targets["haproxy"] = (port, process.pid)

    def start_pgbouncer(self):
        program = find("pgbouncer")
        if not program:
            return print("pgbouncer is not installed: left out")
        port = free_port()
        (self.dir / "users").write_text('"postgres" ""\n')
        config = self.dir / "pgbouncer.ini"
        config.write_text(f"""
[databases]
* = host=127.0.0.1 port={self.server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {self.dir}/users
pool_mode = session
default_pool_size = 100
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
""".replace("* = host", "postgres = user=postgres host"))
        process = self.spawn("pgbouncer", [program, config], **self.user)
        wait_for(port)
        self.targets["pgbouncer"] = (port, process.pid)

    def start_ours(self):
        build = self.options.build
        upstream = f"127.0.0.1:{self.server}"
        threads = str(self.options.threads)
        port = free_port()
        process = self.spawn("bare", [build / "bare-relay", f"127.0.0.1:{port}", upstream],
                             env={**os.environ, "TOKIO_WORKER_THREADS": threads})
        wait_for(port)
        self.targets["bare relay"] = (port, process.pid)
        for name, more in self.variants().items():
            port = free_port()
            journal = self.dir / ("journal " + name)
            process = self.spawn(name, [build / "pgassay", "proxy", "--listen", f"127.0.0.1:{port}",
                                        "--upstream", upstream, "--journal", journal,
                                        "--set", "admin.listen=", "--set", "side.enabled=false",
                                        "--set", f"proxy.threads={threads}", *more])
            wait_for(port)
            self.targets[name] = (port, process.pid)

    def variants(self):
        variants = {"pgassay": ["--record-only"]}
        if self.options.audit:
            variants["pgassay+audit"] = []
        return variants

    def round(self, target, workload, clients, mode):
        port, pid = self.targets[target]
        before = cpu_seconds(pid) if pid else 0
        prefix = self.dir / "latency"
        out = subprocess.run(
            [self.pgbench, "-n", "-M", mode, "-c", str(clients), "-j", str(min(clients, 2)),
             "-T", str(self.options.seconds), "-l", f"--log-prefix={prefix}",
             *(["-S"] if workload == "select" else []), *self.address(port)],
            check=True, capture_output=True, text=True).stdout
        # What is still being recorded belongs to this round.
        time.sleep(0.3)
        used = cpu_seconds(pid) - before if pid else 0
        count = int(next(line for line in out.splitlines() if "actually processed" in line).split()[5].split("/")[0])
        tps = float(next(line for line in out.splitlines() if line.startswith("tps")).split()[2])
        latencies = []
        for log in self.dir.glob("latency.*"):
            latencies += [int(line.split()[2]) for line in log.read_text().splitlines()]
            log.unlink()
        latencies.sort()
        at = lambda share: latencies[min(len(latencies) - 1, int(len(latencies) * share))]
        queries = count if workload == "select" else count * 7
        return {"tps": tps, "p50": at(0.5), "p99": at(0.99), "cpu": used / queries * 100_000}

    def measure(self):
        cells = [(workload, clients, mode) for workload in ("select", "tpcb") for clients in self.options.clients
                 for mode in ("simple", "prepared")]
        rows = []
        for cell in cells:
            samples = {target: [] for target in self.targets}
            for number in range(self.options.rounds):
                order = list(self.targets)
                # Every target comes first once in a while.
                order = order[number % len(order):] + order[:number % len(order)]
                for target in order:
                    samples[target].append(self.round(target, *cell))
                print(".", end="", file=sys.stderr, flush=True)
            middle = {target: {key: statistics.median(sample[key] for sample in many) for key in many[0]}
                      for target, many in samples.items()}
            rows.append((cell, middle))
        print(file=sys.stderr)
        return rows

    def system_calls(self):
        """System calls per round trip, counted by strace at one client, select-only, prepared."""
        program = find("strace")
        if not program:
            return {}
        counts = {}
        transactions = 20_000
        for target, (port, pid) in self.targets.items():
            if not pid:
                continue
            summary = self.dir / "strace"
            trace = self.spawn("tracing", [program, "-f", "-c", "-o", summary, "-p", str(pid)])
            time.sleep(1)
            subprocess.run([self.pgbench, "-n", "-S", "-M", "prepared", "-c", "1", "-t", str(transactions),
                            *self.address(port)], check=True, capture_output=True)
            trace.send_signal(signal.SIGINT)
            trace.wait()
            counts[target] = self.total(summary) / transactions
        return counts

    @staticmethod
    def total(summary):
        calls = 0
        for line in summary.read_text().splitlines():
            words = line.split()
            if len(words) >= 5 and words[0].replace(".", "").isdigit() and words[-1] != "total":
                calls += int(words[3])
        return calls

    def stop(self):
        # Nobody hurries what cleans up.
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def ended(number, _frame):
    sys.exit(128 + number)


def table(bench, rows, calls):
    targets = list(bench.targets)
    lines = []
    say = lines.append
    say(f"Medians of {bench.options.rounds} interleaved rounds of {bench.options.seconds} s each; "
        f"{os.cpu_count()} processors, load {os.getloadavg()[1]:.1f} over the last five minutes; "
        f"{bench.options.threads} relay thread{'s' if bench.options.threads > 1 else ''} for the bare relay and for pgassay.")
    goals(bench, rows, calls, say)
    for title, key, to_direct in [("Throughput, as a ratio to direct", "tps", True),
                                  ("Median latency, as a ratio to direct", "p50", True),
                                  ("99th percentile of latency, as a ratio to direct", "p99", True),
                                  ("CPU seconds of the proxy's process per 100,000 queries", "cpu", False)]:
        shown = targets if to_direct else [target for target in targets if target != "direct"]
        say("")
        say(f"**{title}**")
        say("")
        say("| workload | clients | protocol | " + " | ".join(shown) + " |")
        say("|---|---|---|" + "---|" * len(shown))
        for (workload, clients, mode), middle in rows:
            cells = []
            for target in shown:
                value = middle[target][key]
                if to_direct:
                    base = middle["direct"][key]
                    unit = " tps" if key == "tps" else " µs"
                    cells.append(f"{value:.0f}{unit}" if target == "direct" else f"{value / base:.3f}")
                else:
                    cells.append(f"{value:.2f}")
            say(f"| {workload} | {clients} | {mode} | " + " | ".join(cells) + " |")
    if calls:
        say("")
        say("**System calls per round trip** (strace -c, one client, select-only, prepared): "
            + ", ".join(f"{target} {count:.2f}" for target, count in calls.items()))
    return "\n".join(lines) + "\n"


def mean_ratio(rows, key, target, base):
    """The geometric mean over all rows of `target` divided by `base`."""
    return statistics.geometric_mean(middle[target][key] / middle[base][key] for _, middle in rows)


def goals(bench, rows, calls, say):
    """What was aimed at, with recording on, and what was reached (geometric means over all rows)."""
    cpu = mean_ratio(rows, "cpu", "pgassay", "bare relay")
    seen = [("CPU per query at most 1.15 × the bare relay's", cpu, cpu <= 1.15)]
    if "pgbouncer" in bench.targets:
        cpu = mean_ratio(rows, "cpu", "pgassay", "pgbouncer")
        seen.append(("CPU per query at most PgBouncer's", cpu, cpu <= 1))
    tps = mean_ratio(rows, "tps", "pgassay", "bare relay")
    seen.append(("throughput at least 0.97 × the bare relay's", tps, tps >= 0.97))
    if calls:
        seen.append(("at most 6.2 system calls per round trip", calls["pgassay"], calls["pgassay"] <= 6.2))
    say("")
    say("| goal (recording on) | seen | |")
    say("|---|---|---|")
    for goal, value, reached in seen:
        say(f"| {goal} | {value:.3f} | {'reached' if reached else 'missed'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round of two client counts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--build", type=Path, default=ROOT / "target" / "release", help="where the programs are")
    parser.add_argument("--threads", type=int, default=(os.cpu_count() + 1) // 2,
                        help="relay threads of the bare relay and of pgassay (default: one for every two processors)")
    parser.add_argument("--audit", action="store_true", help="also measure pgassay with the audit running")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.clients = 1, 2, [1, 8]
    for ending in ENDINGS:
        signal.signal(ending, ended)
    bench = Bench(options)
    try:
        bench.start()
        rows = bench.measure()
        calls = bench.system_calls()
        text = table(bench, rows, calls)
    finally:
        bench.stop()
    print(text)
    if options.json:
        options.json.write_text(json.dumps(numbers(bench, rows, calls)))


def numbers(bench, rows, calls):
    """Everything that was measured, for the page of results."""
    cells = [{"workload": workload, "clients": clients, "protocol": mode, "targets": middle}
             for (workload, clients, mode), middle in rows]
    return {"rounds": bench.options.rounds, "seconds": bench.options.seconds, "threads": bench.options.threads,
            "rows": cells, "system_calls": calls}


if __name__ == "__main__":
    main()
