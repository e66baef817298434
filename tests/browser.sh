#!/usr/bin/env bash
# Opens the page of `rungs report` in a headless Chromium, and uses it: see browser.py.
#
# usage: tests/browser.sh
#   CHROMIUM  the browser; else one that is installed, or Debian's, which root can install
#
# Screenshots go to target/browser/shots. Exit status: 0 if all is well.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=$PWD/target/browser

if [ -z "${CHROMIUM-}" ]; then
    CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
fi
if [ -z "$CHROMIUM" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo 'error: no browser: install Chromium, or set CHROMIUM to one' >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        chromium fonts-liberation fonts-dejavu-core >/dev/null
    CHROMIUM=$(command -v chromium)
fi

[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check playwright==1.65.2

mkdir -p "$environment/shots"
rm -rf "$environment/report.html" "$environment/pictures"
cargo run --quiet -p host -- report --out "$environment/report.html" --svg "$environment/pictures"
"$environment/bin/python" tests/browser.py "$CHROMIUM" "$environment"
