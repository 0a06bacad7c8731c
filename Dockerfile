# Built in one stage on Debian, run in another without it: the image has an interpreter, the locked dependencies and the
# service, and neither a shell nor pip nor a package manager. The target `tools` is for those who configure programs.
ARG BASE=debian:trixie-slim@sha256:d7e12182ce18b85b93007c1dedf31f2d29e01ccf3182cc4017c709b6259bc132
FROM ${BASE} AS build
ARG EXTRAS PIP_INDEX_URL PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv binutils ca-certificates
WORKDIR /src
COPY requirements.lock requirements-build.lock requirements-aws.lock requirements-azure.lock requirements-code.lock \
     requirements-google.lock requirements-otlp-grpc.lock ./
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/portico \
    && /opt/build/bin/pip install --no-deps --require-hashes --requirement requirements-build.lock
RUN locks="--requirement requirements.lock" && for extra in $(echo "${EXTRAS:-}" | tr , ' '); do \
        locks="$locks --requirement requirements-$extra.lock"; done \
    && /opt/build/bin/pip --python /opt/portico/bin/python install --no-deps --require-hashes $locks
COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES ./
COPY app ./app
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/portico/bin/python install --no-deps --no-index /wheels/*.whl
COPY deploy/image ./
ARG REVISION
RUN sh rootfs.sh

FROM ${BASE} AS tools
RUN apt-get update && apt-get install --yes --no-install-recommends python3 bubblewrap util-linux ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /rootfs/opt /opt
COPY --from=build /rootfs/srv /srv
COPY --from=build /rootfs/etc/passwd /rootfs/etc/group /etc/
ENV PATH=/opt/portico/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["portico", "health"]
ENTRYPOINT ["portico"]
CMD ["serve"]

FROM scratch
ARG VERSION REVISION CREATED
LABEL org.opencontainers.image.title="Portico" \
      org.opencontainers.image.description="The orchestration facade for LLM agents" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /rootfs /
ENV PATH=/opt/portico/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["portico", "health"]
ENTRYPOINT ["portico"]
CMD ["serve"]
