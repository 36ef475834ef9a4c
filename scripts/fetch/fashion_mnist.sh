#!/usr/bin/env bash
# Fills data/fashion-mnist with the 70,000 pictures of clothes of Fashion-MNIST (Xiao et al. 2017), in
# the format of MNIST. On Debian and its kin `apt install dataset-fashion-mnist` has them as well, and
# then nothing is fetched. Source: https://github.com/zalandoresearch/fashion-mnist. Licence: MIT.
set -euo pipefail

url=http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
debian=/usr/share/datasets/fashion-mnist
out="$(cd "$(dirname "$0")/../.." && pwd)/data/fashion-mnist"
# What the authors publish, as MD5.
sums="8d4fb7e6c68d591d4c3dfef9ec88bf0d  train-images-idx3-ubyte.gz
25c81989df183df01b3e8a0aad5dffbe  train-labels-idx1-ubyte.gz
bef4ecab320f06d8554ea6380940ec79  t10k-images-idx3-ubyte.gz
bb300cfdad3c16e7a12a480ee83cd310  t10k-labels-idx1-ubyte.gz"
mkdir -p "$out"

if [ -d "$debian" ]; then
    cp "$debian"/*.gz "$out"
    exit
fi
command -v curl > /dev/null || { echo "curl is needed" >&2; exit 1; }
part="$out/part"
trap 'rm -f "$part"' EXIT
while read -r sum name; do
    curl --fail --location --silent --show-error --retry 5 --retry-delay 2 --output "$part" "$url/$name"
    echo "$sum  $part" | md5sum --check --quiet || {
        echo "$name: the file that came is another than expected" >&2
        exit 1
    }
    mv "$part" "$out/$name"
done <<< "$sums"
