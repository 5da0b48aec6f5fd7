# StageGPT's programs for x86-64-v3 processors, without CUDA. See docs/install.md.
FROM debian:12 AS build
WORKDIR /source
RUN apt-get update && apt-get install --yes --no-install-recommends git
COPY scripts/setup.sh scripts/
RUN ./scripts/setup.sh
COPY . .
RUN git config --global --add safe.directory /source \
 && cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DSTAGEGPT_TESTS=OFF \
      -DSTAGEGPT_NATIVE=OFF -DSTAGEGPT_ARCH=x86-64-v3 -DSTAGEGPT_TREE=. \
 && cmake --build /build \
 && cmake --install /build --strip --prefix /install

FROM debian:12
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 libopenblas0-openmp libedit2 libpcre2-8-0 libxxhash0 zlib1g \
      libboost-context1.74.0 libopenmpi3 openmpi-bin openssh-client \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /install /usr/local
RUN useradd --create-home student
USER student
WORKDIR /home/student
CMD ["stage0_train", "--help"]
