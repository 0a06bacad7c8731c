# Built in one stage, run in another: the image holds an interpreter, the locked dependencies and the service.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/portico
COPY requirements.lock requirements-build.lock ./
RUN /opt/portico/bin/pip install --require-hashes --requirement requirements.lock --requirement requirements-build.lock
COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES ./
COPY app ./app
RUN /opt/portico/bin/pip install --no-deps --no-build-isolation . && /opt/portico/bin/pip uninstall --quiet --yes setuptools \
    && /opt/portico/bin/python -m compileall -q /opt/portico && mkdir -p /srv/var /srv/plugins \
    && echo /srv/plugins > /opt/portico/lib/python3.11/site-packages/plugins.pth

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS service
LABEL org.opencontainers.image.title="Portico" \
      org.opencontainers.image.description="The orchestration facade for LLM agents" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/portico /opt/portico
# Where executions are kept: the one place that the service may write to.
COPY --from=build --chown=10001:10001 /srv/var /srv/var
# Modules of your own, with tools, rules and flows: mounted or copied here, they are found after all others.
COPY --from=build /srv/plugins /srv/plugins
ENV PATH=/opt/portico/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["portico", "health"]
ENTRYPOINT ["portico"]
CMD ["serve"]

# For tools that run programs: what isolates and limits them. `docker build --target tools`
FROM service AS tools
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap util-linux && rm -rf /var/lib/apt/lists/*
USER 10001:10001

FROM service
