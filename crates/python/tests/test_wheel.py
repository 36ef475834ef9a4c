"""How wheels are made: their metadata, and libraries of CUDA's that an extension loads late."""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("cc"), reason="it needs a compiler"
)

# An extension with two functions of CUDA's libraries, and a driver with those.
EXTENSION = """
int cuInit(unsigned), cuDeviceGetCount(int *), cuGetErrorString(int, const char **);
int cublasCreate_v2(void **);
int init(void) { return cuInit(0); }
int count(void) { int n = -1; return cuDeviceGetCount(&n) ? -1 : n; }
int products(void) { void *handle; return cublasCreate_v2(&handle); }
const char *text(int error) { const char *text = ""; cuGetErrorString(error, &text); return text; }
"""
DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 7; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "the driver's own"; return 0; }
"""
PACKAGED = "int cublasCreate_v2(void **handle) { return 0; }"
LIBRARIES = ["libcublas.so.13", "libcurand.so.10"]


def script(path):
    spec = importlib.util.spec_from_file_location("script", SCRIPTS / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_for_gpus_has_its_own_name_and_brings_the_libraries():
    wheel = script("package/wheel.py")
    plain = message_from_string(wheel.metadata("1.2.3", cuda=False))
    cuda = message_from_string(wheel.metadata("1.2.3", cuda=True))
    assert plain["Name"] == "taper" and cuda["Name"] == "taper-cuda13"
    assert plain.get_all("Requires-Dist") == ["numpy>=1.21"]
    needs = [need.split(">=")[0] for need in cuda.get_all("Requires-Dist")]
    assert needs == ["numpy", "nvidia-cublas", "nvidia-curand", "nvidia-cuda-runtime"]
    assert "pip install taper-cuda13\n" in cuda.get_payload()
    assert "install one of the two" in cuda.get_payload()
    assert "cuda" not in plain.get_payload()


def compiled(source, to, *options):
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(to), *map(str, options)]
    subprocess.run(command, input=source, text=True, check=True)
    return to


@linux
def test_libraries_of_cuda_are_loaded_when_a_gpu_is_asked_for(tmp_path):
    if not shutil.which("cargo"):
        pytest.skip("it needs Cargo")
    subprocess.run([sys.executable, SCRIPTS / "package/cuda/late.py", tmp_path], check=True)
    late = [f"-L{tmp_path}/lib", "-lcuda", "-lcublas", "-lcublasLt", "-lcurand", "-lcudart"]
    extension = compiled(EXTENSION, tmp_path / "taper.so", "-w", *late, "-ldl", "-lpthread")
    needed = subprocess.run(
        ["readelf", "-d", extension], capture_output=True, text=True, check=True
    ).stdout
    assert "libcu" not in needed, needed

    def answers(site, driver=None):
        """What the extension answers in a process of its own, beside packages in `site`."""
        (site / "taper").mkdir(parents=True, exist_ok=True)
        copy = shutil.copy(extension, site / "taper/_native.abi3.so")
        asked = (
            "import ctypes; it = ctypes.CDLL({!r}); it.text.restype = ctypes.c_char_p\n"
            "before = it.products(); status = it.init()\n"
            "print(before, status, it.count(), it.products(), it.text(status).decode())"
        ).format(str(copy))
        environment = {"LD_LIBRARY_PATH": str(driver)} if driver else {}
        command = [sys.executable, "-c", asked]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        *numbers, text = done.stdout.strip().split(" ", 4)
        return [int(number) for number in numbers], text

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        numbers, text = answers(tmp_path / "without")
        assert numbers == [1, 34, -1, 1], (numbers, text)
        assert "libcuda.so.1" in text and "NVIDIA's driver" in text, text

    driver = tmp_path / "driver"
    driver.mkdir()
    compiled(DRIVER, driver / "libcuda.so.1", "-w")
    site = tmp_path / "site"
    packages = site / "nvidia/cu13/lib"
    packages.mkdir(parents=True)
    for library in LIBRARIES:
        compiled(PACKAGED, packages / library, "-w")
    assert answers(site, driver)[0] == [1, 0, 7, 0]

    # One that is missing is named, with what brings it.
    (packages / "libcublas.so.13").write_text("no library")
    numbers, text = answers(site, driver)
    assert numbers[1] == 303 and "pip install nvidia-cublas" in text, (numbers, text)
