# Two images of one build. service: API, gateway, ingest and store, without torch. worker: an instance, with torch.
#   docker build --target service -t trainshed-service .
#   docker build --target worker -t trainshed-worker .
# With CUDA: --build-arg TORCH=2.13.0 --build-arg TORCH_INDEX=<PyTorch's index for your CUDA version>
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
# A base that brings certificates of its own keeps them as they are.
RUN apt-get update \
 && { [ -e /etc/ssl/certs/ca-certificates.crt ] || apt-get install -y --no-install-recommends ca-certificates; } \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log
ENV PATH=/opt/trainshed/bin:$PATH PYTHONUNBUFFERED=1

FROM python AS libraries
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/trainshed
WORKDIR /src
# Before the sources: libraries change seldom, and their layers are kept.
COPY pyproject.toml scripts/requirements_of.py requirements/constraints.txt ./
RUN python3 requirements_of.py service worker >libraries.txt \
 && pip install --constraint constraints.txt --requirement libraries.txt 'setuptools>=77'

FROM libraries AS libraries-worker
ARG TORCH=2.13.0+cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# A wheel that pip's own settings find is taken first.
RUN pip install --constraint constraints.txt "torch==${TORCH}" \
 || pip install --constraint constraints.txt --extra-index-url "${TORCH_INDEX}" "torch==${TORCH}"
RUN python3 requirements_of.py runtime --without torch >libraries.txt \
 && pip install --constraint constraints.txt --requirement libraries.txt

FROM libraries AS build
COPY . .
RUN pip install --no-deps --no-build-isolation .

FROM libraries-worker AS build-worker
COPY . .
RUN pip install --no-deps --no-build-isolation .

FROM python AS service
COPY --from=build /opt/trainshed /opt/trainshed
RUN useradd --system --uid 10001 --home-dir /var/lib/trainshed --create-home --shell /usr/sbin/nologin trainshed \
 && chmod 700 /var/lib/trainshed
USER trainshed
ENV TRAINSHED_HOME=/var/lib/trainshed TRAINSHED_HOST=0.0.0.0
VOLUME /var/lib/trainshed
EXPOSE 8080 8081 8082
CMD ["trainshed", "server"]

# Root: the sandbox that closes each job in is made by it. What it needs is in docker-compose.yml.
FROM python AS worker
COPY --from=build-worker /opt/trainshed /opt/trainshed
ENV TRAINSHED_HOME=/var/lib/trainshed
VOLUME /var/lib/trainshed
CMD ["trainshed", "node", "--server", "http://service:8080", "--token-file", "/run/secrets/trainshed_enrollment_token"]
