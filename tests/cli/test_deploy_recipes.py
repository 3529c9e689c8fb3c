#!/usr/bin/env python3
"""docs/deploy.md: its recipes as they stand there, on the simulated driver, with stand-ins for what starts programs
(docker, srun, …). What each adds to LD_PRELOAD comes behind what was there.
"""

import base64
import copy
import json
import os
import re
import shlex
import socket
import shutil
import subprocess
import sys
import types
import unittest

import recipes

try:
    import yaml
except ImportError:
    yaml = None

PROGRAM = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20)) == 0
os.write(1, f"preloads {os.environ['LD_PRELOAD']}\\n".encode())  # whole, whoever else writes
sys.exit(int(os.environ.get("FAIL", "0")))
"""

# Runs what stands behind the name of an image, with the entry point before it, as the engine would inside.
DOCKER = """#!/usr/bin/env python3
import os, sys
words, entry = sys.argv[1:], []
assert words.pop(0) == "run"
while words[0].startswith("-"):
    option = words.pop(0)
    if option in ("--gpus", "-v", "--entrypoint"):
        value = words.pop(0)
        entry = [value] if option == "--entrypoint" else entry
assert words.pop(0) == "IMAGE", words
os.execvp((entry + words)[0], entry + words)
"""
APPTAINER = """#!/bin/sh
while [ "$1" != image.sif ]; do shift; done
shift
exec "$@"
"""
SRUN = """#!/bin/bash
for rank in 0 1; do SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank "$@" || exit; done
"""
TORCHRUN = """#!/bin/bash
[ "$1" = --nproc-per-node ] && shift 2
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 python3 "$@" & done
wait
"""


def apply(document, operations):
    """The document with a JSON patch of `add` operations (RFC 6902) applied to it."""
    document = copy.deepcopy(document)
    for operation in operations:
        assert set(operation) == {"op", "path", "value"} and operation["op"] == "add", operation
        *parents, last = operation["path"].split("/")[1:]
        place = document
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        value = copy.deepcopy(operation["value"])
        if isinstance(place, list):
            place.insert(len(place) if last == "-" else int(last), value)
        else:
            place[last] = value
    return document


class Deploy(recipes.Recipes):
    """/opt/memlab is this build, /reports a folder of the test."""

    def setUp(self):
        super().setUp()
        self.root = os.path.dirname(recipes.BIN)
        self.library = f"{self.root}/lib/libmemlab.so"
        self.blocks = {name: self.placed(text) for name, text in recipes.blocks("deploy.md").items()}
        self.write("train.py", PROGRAM)
        # Something that is preloaded already.
        self.before = self.path("before.so")
        shutil.copy(self.root + "/bin/programs/driver_wrapper.so", self.before)

    def placed(self, text):
        text = text.replace("/opt/memlab", self.root)
        return re.sub(r'(?<![\w"])/reports', self.path("reports"), text)

    def stand_in(self, name, text):
        self.write(f"bin/{name}", text, executable=True)

    def shell(self, text, **variables):
        variables = {"LD_PRELOAD": self.before, "WRAPPER_ASKS": "driver"} | variables
        path = os.pathsep.join((self.path("bin"), recipes.BIN, os.environ["PATH"]))
        return self.run_all([text], PATH=path, **variables)

    def preloads(self, printed):
        found = [line.split()[1].split(":") for line in printed.splitlines() if line.startswith("preloads ")]
        self.assertTrue(found, printed)
        return found

    def assert_recorded(self, count=1, folder="reports"):
        reports = [name for name in os.listdir(self.path(folder)) if re.fullmatch(r"memlab\.python.*\.json", name)]
        self.assertEqual(len(reports), count, os.listdir(self.path(folder)))
        for name in reports:
            report = json.loads(self.read(f"{folder}/{name}"))
            self.assertEqual(sum(site["requested_bytes"] for site in report["sites"]), 3 << 20)

    def assert_kept(self, printed):
        for order in self.preloads(printed):
            self.assertEqual(sorted(order), sorted([self.before, self.library]))

    def test_every_marked_recipe_is_tested(self):
        with open(__file__, encoding="utf-8") as file:
            text = file.read()
        for name in self.blocks:
            self.assertIn(f'blocks["{name}"]', text)

    def test_no_recipe_replaces_what_is_preloaded(self):
        for name, text in self.blocks.items():
            for value in re.findall(r"LD_PRELOAD\"?[=:] *(.*)", text):
                self.assertRegex(value, r"\$|f\"|LIBRARY", f"{name}: {value}")

    def test_environment(self):
        self.write("inject.sh", "#!/bin/sh\n" + self.blocks["environment"], executable=True)
        code, printed = self.shell("./inject.sh python3 train.py")
        self.assertEqual(code, 0, printed)
        self.assertEqual(self.preloads(printed), [[self.before, self.library]])
        self.assert_recorded()
        code, printed = self.shell("unset LD_PRELOAD; ./inject.sh python3 train.py")
        self.assertEqual((code, self.preloads(printed)), (0, [[self.library]]), printed)

    def test_docker(self):
        self.stand_in("docker", DOCKER)
        code, printed = self.shell(self.blocks["docker"])
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded()
        code, printed = self.shell(self.blocks["docker"], FAIL="9")
        self.assertEqual(code, 9, printed)

    def test_dockerfile(self):
        # Its ENV lines expand as a shell's do.
        text = self.blocks["dockerfile"]
        self.assertEqual(text.splitlines()[0], "FROM IMAGE")
        script = "\n".join("export " + line[4:] for line in text.splitlines() if line.startswith("ENV "))
        command = json.loads(re.search(r"^CMD (.*)$", text, re.M).group(1))
        code, printed = self.shell(script + "\n" + shlex.join(command))
        self.assertEqual(code, 0, printed)
        self.assertEqual(self.preloads(printed), [[self.before, self.library]])
        self.assert_recorded()

    @unittest.skipIf(yaml is None, "there is no PyYAML here")
    def test_kubernetes(self):
        pod = yaml.safe_load(self.blocks["kubernetes"])
        self.assertEqual((pod["apiVersion"], pod["kind"]), ("v1", "Pod"))
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        initial, = spec["initContainers"]
        container, = spec["containers"]
        for each in (initial, container):
            self.assertLessEqual({mount["name"] for mount in each["volumeMounts"]}, volumes)
        # The init container fills the folder from which the command comes.
        self.assertEqual(initial["command"][-1], f"{self.root}/")
        self.assertEqual({mount["mountPath"] for mount in initial["volumeMounts"]}, {self.root})
        self.assertTrue(container["command"][0].startswith(f"{self.root}/"))
        variables = {each["name"]: each["value"] for each in container["env"]}
        code, printed = self.shell(shlex.join(container["command"]), **variables)
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded(folder=f"reports/{socket.gethostname()}")

    def patch_function(self):
        names = {}
        exec(compile(self.blocks["webhook"], "docs/deploy.md", "exec"), names)  # the page's own code
        return names["patch"]

    def test_webhook_example(self):
        pod = json.loads(self.blocks["webhook-pod"])
        patch = self.patch_function()(pod)
        self.assertEqual(patch, json.loads(self.blocks["webhook-patch"]))
        self.assertEqual(json.loads(base64.b64decode(base64.b64encode(json.dumps(patch).encode()))), patch)

    def test_webhook(self):
        patch = self.patch_function()
        preloads = {"name": "LD_PRELOAD", "value": "/a.so"}
        foreign = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
        other = {"name": "WORD", "value": "1"}
        mounts = [{"name": "data", "mountPath": "/data"}]
        for env, expected in ((None, self.library), ([], self.library), ([other], self.library),
                              ([other, preloads], f"/a.so:{self.library}"),
                              ([{"name": "LD_PRELOAD"}], self.library),
                              ([{"name": "LD_PRELOAD", "value": ""}, other], self.library)):
            for rest in ({}, {"volumeMounts": mounts}):
                container = {"name": "c", "image": "i"} | ({} if env is None else {"env": env}) | rest
                for whole in ({}, {"volumes": [{"name": "data", "emptyDir": {}}],
                                   "initContainers": [{"name": "first", "image": "i"}]}):
                    pod = {"spec": {"containers": [container, {"name": "d", "image": "i"}]} | whole}
                    before = copy.deepcopy(pod)
                    patched = apply(pod, patch(pod))
                    self.assertEqual(pod, before)
                    for each, wanted in zip(patched["spec"]["containers"], (expected, self.library)):
                        found = [one["value"] for one in each["env"] if one["name"] == "LD_PRELOAD"]
                        self.assertEqual(found, [wanted])
                        names = [mount["name"] for mount in each["volumeMounts"]]
                        self.assertEqual(len(names), len(set(names)))
                        self.assertLessEqual({"memlab", "memlab-reports"}, set(names))
                    self.assertLessEqual(set(names), {one["name"] for one in patched["spec"]["volumes"]})
                    self.assertEqual(patched["spec"]["initContainers"][-1]["name"], "memlab")
                    # Reports outlive the pod, in a folder for each.
                    claim, = (one for one in patched["spec"]["volumes"] if one["name"] == "memlab-reports")
                    self.assertIn("persistentVolumeClaim", claim)
                    self.assertIn({"name": "MEMLAB_OUTPUT", "value": "/reports/%h/"},
                                  patched["spec"]["containers"][0]["env"])
                    for key in whole:  # what there was is there still, and first
                        self.assertEqual(patched["spec"][key][:1], whole[key])
                    self.assertEqual(patch(patched), [])
        pod = {"spec": {"containers": [{"name": "c", "image": "i", "env": [foreign]}]}}
        self.assertEqual(apply(pod, patch(pod))["spec"]["containers"], pod["spec"]["containers"])

    def test_slurm(self):
        self.stand_in("srun", SRUN)
        self.write("job.sh", self.blocks["slurm"], executable=True)
        code, printed = self.shell("./job.sh", SLURM_JOB_ID="42")
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded(2, "reports-42")
        self.assertRegex(printed, r"2 ranks|rank\s+0")

    def test_apptainer(self):
        self.stand_in("apptainer", APPTAINER)
        code, printed = self.shell(self.blocks["apptainer"])
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded()

    def test_torchrun(self):
        self.stand_in("torchrun", TORCHRUN)
        code, printed = self.shell(self.blocks["torchrun"])
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded(2)

    def test_ray(self):
        asked = {}
        ray = types.ModuleType("ray")
        ray.init = lambda runtime_env: asked.update(runtime_env["env_vars"])
        sys.modules["ray"] = ray
        self.addCleanup(sys.modules.pop, "ray")
        exec(compile(self.blocks["ray"].replace("/reports", self.path("reports")), "docs/deploy.md", "exec"), {})
        # Ray fills in ${NAME}, an empty text for a variable that is not set.
        for before in (self.before, ""):
            variables = {name: value.replace("${LD_PRELOAD}", before) for name, value in asked.items()}
            code, printed = self.shell("python3 train.py", **variables)
            self.assertEqual(code, 0, printed)
            self.assertEqual(self.preloads(printed), [[before, self.library]])
        host = os.uname().nodename
        self.assert_recorded(2, f"reports/{host}")

    def test_systemd(self):
        text = self.blocks["systemd"].replace("/usr/bin/app", "/usr/bin/env python3 train.py").replace(
            "/var/lib/memlab", self.path("reports"))
        *_, command = re.findall(r"^ExecStart=(.*)$", text, re.M)
        code, printed = self.shell(command)
        self.assertEqual(code, 0, printed)
        self.assert_kept(printed)
        self.assert_recorded()
        if shutil.which("systemd-analyze") is None:
            self.skipTest("there is no systemd-analyze here: the unit's syntax is not verified")
        # As a whole unit: systemd reads drop-ins of units that are installed only.
        whole = "[Unit]\nDescription=app\n" + text.replace("ExecStart=\n", "")
        self.write("app.service", whole)
        for unit, complains in ((whole, False), (whole.replace("KillMode=", "KilMode="), True)):
            self.write("app.service", unit)
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", self.path("app.service")],
                                    capture_output=True, text=True, check=False, timeout=60)
            said = [line for line in result.stderr.splitlines() if "app.service" in line]
            self.assertEqual(bool(said), complains, result.stderr)

    @unittest.skipIf(shutil.which("shellcheck") is None, "there is no shellcheck here")
    def test_the_shell_recipes_are_sound(self):
        for name in ("environment", "docker", "slurm", "apptainer", "torchrun"):
            result = subprocess.run(["shellcheck", "-s", "bash", "-"], input=self.blocks[name], text=True,
                                    capture_output=True, check=False)
            self.assertEqual(result.returncode, 0, f"{name}:\n{result.stdout}")


if __name__ == "__main__":
    unittest.main()
