# Boots systemd on a copy of this machine's files: tests/booted.py. Arguments: a cgroup of version 2 to boot in; an empty folder for
# the copy; a folder whose files are added; where Python is; where its packages are; a socket that is told when it has booted.
set -eu
if [ "${7-}" != inside ]; then
    echo $$ >"$1/cgroup.procs"
    exec setpriv --pdeathsig KILL unshare --kill-child --fork --cgroup --ipc --mount --net --pid --uts sh "$0" "$@" inside
fi
mount --make-rprivate /
mount -t tmpfs tmpfs "$2"
root=$2/root
mkdir "$root" "$2/work" "$2/upper"
mount -t overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" overlay "$root"
rm -rf "$root/etc/systemd/system" # what this machine starts
cp -r "$3/." "$root"
mkdir -p "$root/opt/python" "$root/opt/packages" "$root/mnt/outside"
mount --bind -o ro "$4" "$root/opt/python"
mount --bind -o ro "$5" "$root/opt/packages"
mount -t proc proc "$root/proc"
mount --bind -o ro "$root/proc/sys" "$root/proc/sys" # its settings are this machine's
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for folder in dev run tmp; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
chmod 1777 "$root/tmp"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/run/booted"
mount --bind "$6" "$root/run/booted"
ip link set lo up
cd "$root"
pivot_root . mnt/outside
umount -l mnt/outside
mount --make-rshared / # as systemd does it on hardware: credentials are mounted by its children
ldconfig /opt/python/lib
exec env -i container=other NOTIFY_SOCKET=/run/booted PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
    /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
