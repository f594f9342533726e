# The server's own image (the sandbox's is in sandbox/): the executable that `npm run build` makes, and git.
#
#   npm run build && docker build --tag slipway .
#   docker run --detach --name slipway --publish 127.0.0.1:4800:4800 --env OPENAI_API_KEY \
#     --volume /var/run/docker.sock:/var/run/docker.sock --volume /data:/data slipway
#
# The server starts sandboxes on the engine whose socket it is given, beside itself and not inside. Each gets a directory
# below the data directory, with the sockets that are its only way out, and the engine looks for that directory on the
# host. So the data directory has to be a directory of the host, at the same path inside and outside: a named volume,
# or `--volume /srv/slipway:/data`, does not work. Another path: `--volume /srv/slipway:/srv/slipway --env
# SLIPWAY_DATA_DIR=/srv/slipway`. `docker exec slipway slipway sandbox check` tells whether it is right.
#
# The image that sandboxes are made of is built by `npm run slipway -- sandbox build` in a checkout, on the same engine.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

RUN if ! command -v git > /dev/null; then \
      apt-get update \
      && apt-get install --yes --no-install-recommends ca-certificates git \
      && rm -rf /var/lib/apt/lists/*; \
    fi

COPY dist/slipway /usr/local/bin/slipway

ENV SLIPWAY_DATA_DIR=/data
VOLUME /data
EXPOSE 4800

# Root of this container, because the engine's socket is root's.
ENTRYPOINT ["slipway"]
CMD ["serve", "--listen", "0.0.0.0:4800"]
