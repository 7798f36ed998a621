# Frugal on the CPU: the program, and its Python package for Debian's Python.
#   docker build -t frugal .
#   docker run --rm -v "$PWD:/work" frugal train config.json --out runs/a
#   docker run --rm -it -v "$PWD:/work" --entrypoint python3 frugal
# Debian packages are built in a first image, and the second one holds what they need and no compiler.
ARG DEBIAN=trixie
FROM debian:${DEBIAN} AS build
WORKDIR /frugal
COPY tools/setup.sh tools/setup.sh
RUN tools/setup.sh python3-dev pybind11-dev python3-numpy dpkg-dev file
COPY . .
RUN cmake --preset release -DFRUGAL_TESTS=OFF && cmake --build --preset release
RUN cpack --config build/release/CPackConfig.cmake -B packages

FROM debian:${DEBIAN}-slim
RUN --mount=type=bind,from=build,source=/frugal/packages,target=/packages \
    apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates \
      /packages/frugal_*.deb /packages/python3-frugal_*.deb && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["frugal"]
CMD ["--help"]
