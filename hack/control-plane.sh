#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Gets kube-apiserver, etcd and kubectl, and prints the directory that contains
# them, so that tests and the demo can run a real API server:
#
#   KUBEBUILDER_ASSETS="$(hack/control-plane.sh)" go test ./...
#
# --with-controller-manager also gets kube-controller-manager. --version=1.35 gets
# the kube-apiserver of another minor release, with the other binaries of the default one. It must be pinned in
# hack/controlplane/<minor>. With this flag, KUBEBUILDER_ASSETS is ignored.
#
# Sources of the binaries:
#   1. KUBEBUILDER_ASSETS, if set. The versions are not checked.
#   2. A download by setup-envtest, if its server can be reached.
#   3. A build from the Go modules pinned in hack/controlplane/go.mod, which takes
#      about ten minutes on two cores. It requires only a Go module proxy.
# The script uses existing binaries before it downloads or builds any. To change this:
#
#   NSLIFECYCLE_CONTROL_PLANE=auto|download|build   (default: auto)
#   NSLIFECYCLE_DOWNLOAD_TIMEOUT=<seconds>          (default: 60; 600 for download)
#
# stdout contains only the directory; all other output goes to stderr.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly root
readonly bin="${root}/bin"
module="${root}/hack/controlplane"
built="${bin}/controlplane"
readonly combined="${bin}/controlplane-combined"
readonly store="${bin}/k8s"
readonly failed_mark="${store}/.download-failed"

exec 3>&1 1>&2

say() { echo "control-plane: $*"; }

die() {
  say "$@"
  exit 1
}

# The commands run in the script's process group, so Ctrl-C interrupts them
# too. The script only removes their incomplete files.
scratch=""
cleanup() {
  if [[ -n "${scratch}" ]]; then
    # setup-envtest unpacks read-only files.
    chmod -R u+w "${scratch}" 2>/dev/null || true
    rm -rf "${scratch}"
  fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

new_scratch() {
  cleanup
  # Inside bin/, since only a rename within one file system is atomic.
  scratch="$(mktemp -d "${bin}/.control-plane.XXXXXX")"
}

answer() {
  echo "$1" >&3
  exit 0
}

# The minor release pinned in a go.mod.
minor_of() {
  sed -n 's/^[[:space:]]*\(require \)\{0,1\}k8s\.io\/kubernetes v\([0-9]*\.[0-9]*\)\..*/\2/p' "$1/go.mod" | head -n 1
}

with_controller_manager=false
other=""
for arg in "$@"; do
  case "${arg}" in
    --version=*) other="${arg#--version=}" ;;
    --with-controller-manager) with_controller_manager=true ;;
    -h | --help)
      sed -n '/^# Gets/,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&3
      exit 0
      ;;
    *) die "Unknown argument ${arg}. The valid arguments are --with-controller-manager and --version=<minor>." ;;
  esac
done

if [[ -n "${other}" ]]; then
  unset KUBEBUILDER_ASSETS
  if [[ "${other}" == "$(minor_of "${module}")" ]]; then
    other=""
  else
    [[ -f "${module}/${other}/go.mod" ]] ||
      die "Kubernetes ${other} is not pinned in hack/controlplane; run: hack/pin-control-plane.sh ${other}"
    # All binaries except kube-apiserver are those of the default version.
    shared=(etcd kubectl)
    arguments=()
    if "${with_controller_manager}"; then
      shared+=(kube-controller-manager)
      arguments+=(--with-controller-manager)
      with_controller_manager=false
    fi
    base="$("${BASH_SOURCE[0]}" "${arguments[@]}" 3>&-)"
    readonly base
    module="${module}/${other}"
    built="${bin}/controlplane-${other}"
    mkdir -p "${built}"
    for name in "${shared[@]}"; do
      ln -sfn "${base}/${name}" "${built}/${name}"
    done
  fi
fi
readonly module built other with_controller_manager

# The binaries of envtest archives, which do not include kube-controller-manager.
readonly base_binaries=(kube-apiserver etcd kubectl)
binaries=("${base_binaries[@]}")
if [[ -n "${other}" ]]; then
  binaries=(kube-apiserver)
fi
if "${with_controller_manager}"; then
  binaries+=(kube-controller-manager)
fi

has_binaries() {
  local dir="$1" name
  shift
  for name in "$@"; do
    [[ -f "${dir}/${name}" && -x "${dir}/${name}" ]] || return 1
  done
}

# 1. KUBEBUILDER_ASSETS ------------------------------------------------------

if [[ -n "${KUBEBUILDER_ASSETS:-}" ]]; then
  # The path must be absolute, because go test changes to the directory of each package.
  assets="$(cd "${KUBEBUILDER_ASSETS}" 2>/dev/null && pwd -P)" ||
    die "KUBEBUILDER_ASSETS is ${KUBEBUILDER_ASSETS}, which is not a directory. Unset it to let this script get a control plane."
  needed=(kube-apiserver etcd)
  if "${with_controller_manager}"; then
    needed+=(kube-controller-manager)
  fi
  for name in "${needed[@]}"; do
    has_binaries "${assets}" "${name}" ||
      die "KUBEBUILDER_ASSETS is ${KUBEBUILDER_ASSETS}, but there is no executable ${name} in it. Put one there, or unset KUBEBUILDER_ASSETS to let this script get a control plane."
  done
  has_binaries "${assets}" kubectl ||
    say "Note: there is no kubectl in KUBEBUILDER_ASSETS, so the kubectl in PATH is used."
  answer "${assets}"
fi

mode="${NSLIFECYCLE_CONTROL_PLANE:-auto}"
case "${mode}" in
  auto | download | build) ;;
  *) die "NSLIFECYCLE_CONTROL_PLANE is ${mode}; it must be auto, download or build." ;;
esac

command -v go >/dev/null ||
  die "Go is required to get a control plane, but it is not in PATH. Install Go, or set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd."

# The binaries are built for this machine, even if the caller cross-compiles, and
# from this module, even within a workspace.
export GOOS="" GOARCH="" GOWORK=off
mkdir -p "${bin}"

# 3. The build (functions; used by 2 for kube-controller-manager) ------------

package_of() {
  case "$1" in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}

# The stamp of a binary depends on these flags, since they affect the build.
readonly build_flags="CGO_ENABLED=0 -trimpath -s -w gitVersion gitMajor gitMinor gitTreeState"

hash_of_stdin() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

inputs=""
inputs_hash() {
  if [[ -z "${inputs}" ]]; then
    inputs="$({
      cat "${module}/go.mod" "${module}/go.sum"
      cd "${module}" && go version
      echo "${build_flags}"
    } | hash_of_stdin)"
  fi
}

# A binary is current if its stamp has the hash of the current inputs and is not
# older than the binary. A binary that was copied manually is rebuilt.
is_current() {
  local binary="${built}/$1" stamp="${built}/.$1.stamp"
  inputs_hash
  has_binaries "${built}" "$1" && [[ -f "${stamp}" ]] &&
    [[ "$(<"${stamp}")" == "${inputs}" ]] && ! [[ "${binary}" -nt "${stamp}" ]]
}

all_current() {
  local name
  for name in "$@"; do
    is_current "${name}" || return 1
  done
}

build() {
  local name version major minor rest v ldflags started
  local missing=()
  for name in "$@"; do
    is_current "${name}" || missing+=("${name}")
  done
  [[ "${#missing[@]}" -gt 0 ]] || return 0

  version="$(cd "${module}" && go list -m -f '{{.Version}}' k8s.io/kubernetes)"
  IFS=. read -r major minor rest <<<"${version#v}"
  # A build from modules has no version control information: without these flags, the
  # server would report version v0.0.0-master, but clients depend on the version.
  v=k8s.io/component-base/version
  ldflags="-s -w -X ${v}.gitVersion=${version} -X ${v}.gitMajor=${major} -X ${v}.gitMinor=${minor} -X ${v}.gitTreeState=clean"

  say "Building ${missing[*]} (Kubernetes ${version}) from Go modules. This takes about ten minutes on two cores. The binaries are reused."
  mkdir -p "${built}"
  new_scratch
  for name in "${missing[@]}"; do
    started="${SECONDS}"
    say "Building ${name} ..."
    # Descriptor 9 is the lock, which a process that outlives the build must not hold.
    (cd "${module}" && CGO_ENABLED=0 go build -trimpath -ldflags "${ldflags}" -o "${scratch}/${name}" \
      "$(package_of "${name}")") 3>&- 9>&- ||
      die "Building ${name} failed. If modules cannot be downloaded here, set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd."
    # This order prevents incomplete binaries, and a new binary with an old stamp.
    rm -f "${built}/.${name}.stamp"
    mv -f "${scratch}/${name}" "${built}/${name}"
    echo "${inputs}" >"${scratch}/stamp"
    mv -f "${scratch}/stamp" "${built}/.${name}.stamp"
    say "Built ${name} in $((SECONDS - started)) s."
  done
}

# 2. The download (functions) ------------------------------------------------

# The pinned modules define the minor release.
selector=""
download_selector() {
  if [[ -z "${selector}" ]]; then
    selector="$(minor_of "${module}")"
    [[ -n "${selector}" ]] || die "${module#"${root}/"}/go.mod does not pin k8s.io/kubernetes."
    selector+=.x
  fi
}

downloaded=""
find_downloaded() {
  local path
  download_selector
  [[ -d "${store}/k8s" && -x "${bin}/setup-envtest" ]] || return 1
  path="$("${bin}/setup-envtest" use --installed-only "${selector}" -p path --bin-dir "${store}" 2>/dev/null)" || return 1
  has_binaries "${path}" "${base_binaries[@]}" || return 1
  downloaded="${path}"
}

with_timeout() {
  local seconds="$1"
  shift
  if command -v timeout >/dev/null; then timeout "${seconds}" "$@"; else "$@"; fi
}

download() {
  local seconds path
  download_selector
  seconds="${NSLIFECYCLE_DOWNLOAD_TIMEOUT:-$([[ "${mode}" == download ]] && echo 600 || echo 60)}"
  say "Downloading kube-apiserver, etcd and kubectl ${selector} with setup-envtest (for at most ${seconds} s) ..."
  mkdir -p "${store}/k8s"
  "${root}/hack/tool.sh" setup-envtest 3>&- 9>&- || return 1
  # Download to a separate directory first: setup-envtest considers the files of an
  # interrupted download complete.
  new_scratch
  path="$(with_timeout "${seconds}" "${bin}/setup-envtest" use "${selector}" -p path --bin-dir "${scratch}" 3>&- 9>&-)" || return 1
  has_binaries "${path}" "${base_binaries[@]}" || return 1
  # Moving a directory requires write permission for the directory, not only for its parent.
  chmod u+w "${path}" || return 1
  rm -rf "${store}/k8s/${path##*/}"
  mv "${path}" "${store}/k8s/" || return 1
  rm -f "${failed_mark}"
  find_downloaded
}

# Archives do not contain kube-controller-manager, so it is built and placed beside links
# to the downloaded binaries.
combine() {
  local name
  build kube-controller-manager
  mkdir -p "${combined}"
  for name in "${base_binaries[@]}"; do
    ln -sfn "${downloaded}/${name}" "${combined}/${name}"
  done
  ln -sfn "${built}/kube-controller-manager" "${combined}/kube-controller-manager"
}

combined_current() {
  has_binaries "${combined}" "${binaries[@]}" && is_current kube-controller-manager &&
    [[ "${combined}/kube-apiserver" -ef "${downloaded}/kube-apiserver" ]]
}

# Existing binaries ------------------------------------------------------------

answer_if_present() {
  if [[ "${mode}" != build ]] && find_downloaded; then
    if ! "${with_controller_manager}"; then
      answer "${downloaded}"
    elif combined_current; then
      answer "${combined}"
    fi
  fi
  if [[ "${mode}" != download ]] && all_current "${binaries[@]}"; then
    answer "${built}"
  fi
}

answer_if_present

# Only one process at a time downloads or builds. Waiting processes then use its binaries.
if command -v flock >/dev/null; then
  exec 9>"${bin}/.control-plane.lock"
  if ! flock -n 9; then
    say "Another process is getting the control plane; waiting for it ..."
    flock 9
  fi
  answer_if_present
fi

if [[ "${mode}" != build ]]; then
  # A failure is cached: if downloads are blocked, only the first call
  # waits for the timeout.
  if [[ -z "${downloaded}" ]] && [[ "${mode}" == download || ! -e "${failed_mark}" ]]; then
    if ! download; then
      downloaded=""
      if [[ "${mode}" == download ]]; then
        die "The download failed. Unset NSLIFECYCLE_CONTROL_PLANE to build the control plane from Go modules instead."
      fi
      date >"${failed_mark}"
      say "The download failed, so the control plane is built instead. To retry, set NSLIFECYCLE_CONTROL_PLANE=download."
    fi
  fi
  if [[ -n "${downloaded}" ]]; then
    if ! "${with_controller_manager}"; then
      answer "${downloaded}"
    fi
    combine
    answer "${combined}"
  fi
fi

build "${binaries[@]}"
answer "${built}"
