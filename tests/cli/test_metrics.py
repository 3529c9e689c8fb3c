#!/usr/bin/env python3
"""memlab-top --listen: the text by Prometheus's own parsers, a real Prometheus that scrapes it, the alert rules and the
dashboard of samples/prometheus, and whoever else comes to its port. Run by ctest, as test_summary.py is."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from live_peers import GIB
from test_consumers import import_or_skip, skip_without
from test_summary import SOURCE
from test_top import TOP, TopTest

SAMPLES = os.path.join(SOURCE, "samples", "prometheus")
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Exporter:
    def __init__(self, test, *arguments, address="127.0.0.1:0", **environment):
        self.process = subprocess.Popen([TOP, "--listen", address, "--interval", "0.5", *arguments],
                                        env={**test.environment, **environment}, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.line = self.process.stderr.readline()
        found = re.fullmatch(r"memlab-top: metrics at http://(.*):(\d+)/metrics\n", self.line)
        test.assertIsNotNone(found, self.line)
        self.host, self.port = found.group(1), int(found.group(2))

    def get(self, path="/metrics", accept=None, patience=15):
        end = time.monotonic() + patience
        while True:
            request = urllib.request.Request("http://%s:%d%s" % (self.host, self.port, path),
                                             headers={"Accept": accept} if accept else {})
            try:
                with urllib.request.urlopen(request, timeout=10) as reply:
                    return reply.headers["Content-Type"], reply.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503 or time.monotonic() > end:  # until there is a first sample
                        raise
            time.sleep(0.1)

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=10)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(10)
        self.process.stderr.close()
        return code


class MetricsTest(TopTest):
    def start_peers(self):
        (pid,) = self.peers.start(tensors=9 * GIB, rank="3", steps=100, ooms=2, growth=1 << 20)
        self.peers.start(2, gpu=1)
        self.use_nvml("%d:22000" % pid, gpus=2)
        return pid


class Text(MetricsTest):
    def test_prometheus_parsers_take_both_formats(self):
        parsers = {OPEN_METRICS: import_or_skip("prometheus_client.openmetrics.parser"),
                   None: import_or_skip("prometheus_client.parser")}
        pid = self.start_peers()
        exporter = Exporter(self)
        for accept, parser in parsers.items():
            kind, text = exporter.get(accept=accept)
            self.assertIn("application/openmetrics-text" if accept else "version=0.0.4", kind)
            families = {family.name: family for family in parser.text_string_to_metric_families(text)}
            self.assertGreater(len(families), 25)
            (allocated,) = [sample for sample in families["memlab_process_allocated_bytes"].samples
                            if sample.labels["pid"] == str(pid)]
            self.assertEqual(allocated.labels["script"], "train.py")
            self.assertEqual(allocated.labels["rank"], "3")
            self.assertTrue(allocated.labels["uuid"].startswith("GPU-73696d63"))
            self.assertGreaterEqual(allocated.value, 12 * GIB)
            (ooms,) = [sample for sample in families["memlab_process_out_of_memory"].samples
                       if sample.labels["pid"] == str(pid)]
            self.assertEqual((ooms.name, ooms.value), ("memlab_process_out_of_memory_total", 2))

    @skip_without("promtool")
    def test_promtool_has_nothing_to_say(self):
        self.start_peers()
        _, text = Exporter(self).get()
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_privacy(self):
        (pid,) = self.peers.start(arguments=["python3", "/home/user/private.py", "--key", "secret"])
        self.use_nvml("%d:22000" % pid)
        _, text = Exporter(self).get()
        self.assertIn('script="private.py"', text)
        self.assertNotIn("secret", text)
        self.assertNotIn("/home/user", text)
        _, text = Exporter(self, MEMLAB_ARGUMENTS="off").get()
        self.assertNotIn("private", text)
        _, text = Exporter(self, "--anonymize").get()
        self.assertNotIn(os.uname().nodename + '"', text)
        self.assertNotIn("GPU-73696d63", text)


class Server(MetricsTest):
    def test_a_taken_port_is_one_line(self):
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        port = taken.getsockname()[1]
        result = self.call(TOP, "--listen", "127.0.0.1:%d" % port)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "memlab-top: cannot listen on 127.0.0.1:%d (Address already in use); give "
                                        "another with --listen\n" % port)

    def test_a_port_alone_is_loopback(self):
        exporter = Exporter(self, address="0")
        self.assertEqual(exporter.host, "127.0.0.1")
        self.assertEqual(exporter.end(), 0)

    def test_what_is_no_scrape_is_refused_and_keeps_nobody_waiting(self):
        self.start_peers()
        exporter = Exporter(self)
        exporter.get()
        idle = [exporter.connect() for _ in range(20)]
        slow = exporter.connect()
        slow.sendall(b"GET /met")
        for request, status in ((b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
                                (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"404"),
                                (b"\x16\x03\x01\x00\n\n", b"400"), (b"a" * 20000, b"431")):
            with exporter.connect() as client:
                client.sendall(request)
                self.assertEqual(client.recv(100)[9:12], status, request[:40])
        begin = time.monotonic()
        exporter.get()
        self.assertLess(time.monotonic() - begin, 3)
        # Clients that say nothing are sent away.
        time.sleep(6)
        self.assertEqual([client.recv(10) for client in (*idle, slow)], [b""] * 21)
        for client in (*idle, slow):
            client.close()
        # Nobody is kept by more clients than it takes: they wait for those before them.
        many = [exporter.connect() for _ in range(40)]
        exporter.get(patience=20)
        for client in many:
            client.close()
        self.assertEqual(exporter.end(), 0)


class Prometheus(MetricsTest):
    def query(self, port, expression):
        with urllib.request.urlopen("http://127.0.0.1:%d/api/v1/query?%s" % (
                port, urllib.parse.urlencode({"query": expression})), timeout=10) as reply:
            document = json.load(reply)
        self.assertEqual(document["status"], "success", expression)
        return document["data"]["result"]

    @skip_without("prometheus")
    def test_the_dashboards_queries_have_series(self):
        self.start_peers()
        exporter = Exporter(self)
        exporter.get()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with open(os.path.join(SAMPLES, "prometheus.yml"), encoding="utf-8") as file:
            configuration = file.read()
        for here, there in (("scrape_interval: 15s", "scrape_interval: 1s"),
                            ("127.0.0.1:9435", "127.0.0.1:%d" % exporter.port)):
            self.assertIn(here, configuration)
            configuration = configuration.replace(here, there)
        with open(self.path("prometheus.yml"), "w", encoding="utf-8") as file:
            file.write(configuration)
        shutil.copy(os.path.join(SAMPLES, "alerts.yml"), self.folder.name)
        with open(self.path("prometheus.log"), "w", encoding="utf-8") as log:
            prometheus = subprocess.Popen(
                ["prometheus", "--config.file", self.path("prometheus.yml"), "--storage.tsdb.path", self.path("data"),
                 "--web.listen-address", "127.0.0.1:%d" % port], stdout=log, stderr=log)
        self.addCleanup(prometheus.wait)
        self.addCleanup(prometheus.terminate)
        with open(os.path.join(SAMPLES, "dashboard.json"), encoding="utf-8") as file:
            dashboard = json.load(file)
        queries = [target["expr"].replace("$host", ".*").replace("$__rate_interval", "1m")
                   for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(queries), 10)
        end = time.monotonic() + 60
        left = queries
        while left and time.monotonic() < end:
            time.sleep(0.5)
            try:
                left = [query for query in left if not self.query(port, query)]
            except urllib.error.URLError:  # it is not up yet
                continue
        with open(self.path("prometheus.log"), encoding="utf-8") as log:
            self.assertEqual(left, [], log.read())
        self.assertEqual([sample["value"][1] for sample in self.query(port, "up")], ["1"])
        hosts = {sample["metric"]["host"] for sample in self.query(port, "memlab_gpu_info")}
        self.assertEqual(hosts, {os.uname().nodename})

    @skip_without("promtool")
    def test_the_alert_rules(self):
        result = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=SAMPLES, capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        with open(os.path.join(SAMPLES, "alerts.yml"), encoding="utf-8") as file:
            names = set(re.findall(r"alert: (\w+)", file.read()))
        with open(os.path.join(SAMPLES, "alerts_test.yml"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual({name for name in names if not re.search(r"alertname: %s\n" % name, text)}, set())

    def test_every_metric_that_the_samples_name_exists(self):
        self.start_peers()
        _, text = Exporter(self).get()
        known = set(re.findall(r"(?m)^# TYPE (\S+)", text))
        for name in ("alerts.yml", "dashboard.json"):
            with open(os.path.join(SAMPLES, name), encoding="utf-8") as file:
                named = set(re.findall(r"memlab_[a-z_]+", file.read()))
            self.assertEqual(named - known, set(), name)


if __name__ == "__main__":
    unittest.main()
