"""Builds the module of the Python package with CMake, for `pip install .`.

The environment variable FRUGAL_BUILD names a build folder that is used again; without it the build
takes place in a folder of pip's. CMAKE_ARGS adds arguments, such as -DFRUGAL_CUDA=OFF.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        to = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(os.environ.get("FRUGAL_BUILD") or self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DPython3_EXECUTABLE={sys.executable}"]
        if not (build / "CMakeCache.txt").exists():
            configure += ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DFRUGAL_TESTS=OFF"]
        configure += ["-DFRUGAL_PYTHON=ON", *shlex.split(os.environ.get("CMAKE_ARGS", ""))]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "frugal_python"], check=True)
        to.mkdir(parents=True, exist_ok=True)
        built = build / "python" / "frugal" / Path(self.get_ext_filename(ext.name)).name
        self.copy_file(str(built), str(to / built.name))


version = re.search(r"project\(Frugal VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
setup(
    version=version.group(1),
    packages=["frugal", "frugal.torch"],
    package_dir={"": "python"},
    package_data={"frugal": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("frugal._frugal", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
