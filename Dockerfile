# docker build -t askfirst . ; docs/deploy.md says how to run it.
#
# A tag may come to mean another image. To pin the base, take its digest and write it behind the tag, in both places:
#   docker buildx imagetools inspect python:3.11-slim-bookworm --format '{{.Manifest.Digest}}'
#   FROM python:3.11-slim-bookworm@sha256:...
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY requirements/image.txt requirements/
RUN python -m venv /opt/askfirst \
    && /opt/askfirst/bin/pip install --no-cache-dir --require-hashes --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY askfirst askfirst
COPY channels channels
COPY gateway gateway
# What only built the packages is left behind.
RUN /opt/askfirst/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/askfirst/bin/pip uninstall --yes hatchling hatch-fancy-pypi-readme editables packaging pathspec pluggy tomlkit trove-classifiers setuptools pip

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 askfirst \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin askfirst \
    && install --directory --owner askfirst --group askfirst --mode 0700 /data /artifacts
COPY --from=build /opt/askfirst /opt/askfirst
COPY examples/approval.py /bot/bot.py
ENV PATH=/opt/askfirst/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ASKFIRST_STORE=sqlite:////data/askfirst.db
# By number: Kubernetes' runAsNonRoot cannot tell who a name is.
USER 10001:10001
WORKDIR /bot
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import os, sys, http.client as h; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('PORT', 8080)), timeout=2); c.request('GET', '/livez'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["askfirst"]
CMD ["serve", "bot.py"]
