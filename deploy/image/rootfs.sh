#!/bin/sh
# Make /rootfs, the root of the image: the interpreter of Debian from its packages, and /opt/portico. It runs in the
# build stage. There is no shell, no package manager and no setuid file; /var/lib/dpkg/status.d names each package.
set -eu
PACKAGES="python3.13-minimal libpython3.13-minimal libpython3.13-stdlib media-types netbase ca-certificates
    libc6 libgcc-s1 gcc-14-base libstdc++6 libexpat1 zlib1g libssl3t64 libsqlite3-0 libffi8 libbz2-1.0 liblzma5 libuuid1 libzstd1"
root=/rootfs status=/rootfs/var/lib/dpkg/status.d

mkdir -p "$root/usr/lib" "$root/usr/lib64" "$root/usr/bin" "$root/etc/ssl/certs" "$root/opt" "$root/tmp" "$status" /debs
chmod 1777 "$root/tmp"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
ln -s usr/bin "$root/bin"
cd /debs
apt-get download $PACKAGES
for package in *.deb; do
    dpkg-deb -x "$package" "$root"
    dpkg-deb -f "$package" > "$status/$(dpkg-deb -f "$package" Package)"
done

# What only builds, documents or installs; the licences stay.
find "$root/usr/share" -mindepth 1 -maxdepth 1 ! -name doc -exec rm -rf {} +
find "$root/usr/share/doc" ! -type d ! -name copyright ! -type l -delete
rm -rf "$root/usr/sbin" "$root/sbin" "$root"/usr/lib/*/gconv
(cd "$root/usr/lib/python3.13" && rm -rf test idlelib ensurepip turtledemo pydoc_data lib-dynload/_test*.so lib-dynload/_xxtest*.so)
ln -s python3.13 "$root/usr/bin/python3"

cp -a /opt/portico "$root/opt/portico"
rm -rf "$root/opt/portico/include"
if [ -n "${REVISION:-}" ]; then # which `portico --version` prints
    (cd "$root"/opt/portico/lib/python3*/site-packages/portico-*.dist-info && echo "$REVISION" > REVISION)
fi
find "$root/opt/portico/bin" -mindepth 1 ! -name 'python*' ! -name portico -delete
(cd "$root"/opt/portico/lib/python3*/site-packages && rm -rf numpy/f2py sqlalchemy/testing alembic/testing \
    sqlalchemy/dialects/mssql sqlalchemy/dialects/mysql sqlalchemy/dialects/oracle)
# Rich highlights code in Python alone.
find "$root"/opt/portico/lib/python3*/site-packages/pygments/lexers -name '*.py' ! -name __init__.py ! -name _mapping.py ! -name python.py -delete
find "$root/opt/portico" -type d \( -name tests -o -name benchmarks -o -name __pycache__ -o -name include \) -prune -exec rm -rf {} +
find "$root/opt/portico" -type f \( -name '*.pyi' -o -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.pyx' -o -name '*.pxd' \
    -o -name '*.a' \) -delete
find "$root/opt/portico" "$root/usr/lib" -name '*.so*' -type f -exec strip --strip-unneeded {} +
/usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$root/usr/lib/python3.13" "$root/opt/portico/lib"

mkdir -p "$root/usr/lib/ssl"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
ln -s /etc/ssl/certs "$root/usr/lib/ssl/certs"
cp /usr/lib/os-release "$root/etc/os-release"
echo 'portico:x:10001:10001::/srv:/' > "$root/etc/passwd"
echo 'portico:x:10001:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# Where executions are kept, the one place that the service may write to; and modules of the user, found after all others.
mkdir -p "$root/srv/plugins" "$root/srv/var"
chown 10001:10001 "$root/srv/var"
for site in "$root"/opt/portico/lib/python3*/site-packages; do
    echo /srv/plugins > "$site/plugins.pth"
done
find "$root" -perm /6000 -type f -exec chmod ug-s {} +
