#!/bin/bash
# Makes the database at the first start, then becomes the server. A first start that was broken off begins again.
set -euo pipefail
if [ "$1" != postgres ]; then
    exec "$@"
fi
as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups)
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
chown postgres "$PGDATA"
chmod 700 "$PGDATA"
if [ ! -e "$PGDATA/made" ]; then
    find "$PGDATA" -mindepth 1 -delete
    password=$(mktemp)
    cat "${POSTGRES_PASSWORD_FILE:?names the file with the password}" >"$password"
    chown postgres "$password"
    # shellcheck disable=SC2086  # several words, as the public image takes them
    "${as_postgres[@]}" initdb --pgdata="$PGDATA" --username="$user" --auth-local=trust --auth-host=scram-sha-256 \
        ${POSTGRES_INITDB_ARGS:-} --pwfile="$password"
    rm "$password"
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\"" | "${as_postgres[@]}" postgres --single -D "$PGDATA" postgres
    fi
    touch "$PGDATA/made"
fi
exec "${as_postgres[@]}" "$@" -c listen_addresses='*'
