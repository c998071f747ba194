# The image that docker-* builds and deploy installs.
IMG ?= ghcr.io/nslifecycle/nslifecycle:latest
# More arguments for run, demo, the benchmarks and test, for example `make demo ARGS=--once`.
ARGS ?=
# The tool that builds images: docker, or one that takes the same arguments.
CONTAINER_TOOL ?= docker
# The platforms of docker-buildx.
PLATFORMS ?= linux/amd64,linux/arm64,linux/s390x,linux/ppc64le
# The platforms of image-archive.
ARCHIVE_PLATFORMS ?= linux/amd64,linux/arm64
# The command that makes the image in $$IMAGE_ARCHIVE known to the cluster in KUBECONFIG as $$IMG,
# for test-e2e. Without one, test-e2e makes a cluster of its own with Kind.
LOAD_IMAGE ?=
# The name of that cluster, and the image of its node; the one that Kind knows best if empty.
KIND_CLUSTER ?= nslifecycle-test-e2e
KIND_NODE_IMAGE ?=
# The archive of image-push.
ARCHIVE ?= dist/image.tar
# The image of release-artifacts, and the platforms of the programs.
RELEASE_IMAGE ?= ghcr.io/nslifecycle/nslifecycle
RELEASE_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# How long undeploy waits for the end of the system namespace before it sees to that itself.
UNDEPLOY_PATIENCE ?= 60s
KUBECTL ?= kubectl

# Tools. Each is pinned here and nowhere else.
ACTIONLINT_VERSION ?= v1.7.12
CONTROLLER_GEN_VERSION ?= v0.23.0
COSIGN_VERSION ?= v3.1.3
CRD_REF_DOCS_VERSION ?= v0.3.0
GOLANGCI_LINT_VERSION ?= v2.15.0
GOVULNCHECK_VERSION ?= v1.8.0
HELM_VERSION ?= v4.3.1
KIND_VERSION ?= v0.33.0
# v5.8.3 needs Go 1.27, and this project builds with 1.26.
KUSTOMIZE_VERSION ?= v5.8.2
SETUP_ENVTEST_VERSION ?= v0.25.1

# Not to be moved: hack/control-plane.sh and the overlay of deploy rely on it.
LOCALBIN := $(CURDIR)/bin
ACTIONLINT := $(LOCALBIN)/actionlint
CONTROLLER_GEN := $(LOCALBIN)/controller-gen
CRD_REF_DOCS := $(LOCALBIN)/crd-ref-docs
GOLANGCI_LINT := $(LOCALBIN)/golangci-lint
GOVULNCHECK := $(LOCALBIN)/govulncheck
HELM := $(LOCALBIN)/helm
KIND := $(LOCALBIN)/kind
KUSTOMIZE := $(LOCALBIN)/kustomize
SETUP_ENVTEST := $(LOCALBIN)/setup-envtest

# As the image is built. Besides, kustomize in the plugin uses Go's package plugin where
# there is cgo, and then the linker has to keep everything and takes minutes.
export CGO_ENABLED ?= 0

# Stop at the first error, also in a pipe.
SHELL = /usr/bin/env bash -o pipefail
.SHELLFLAGS = -ec

.DEFAULT_GOAL := help

.PHONY: all
all: build

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; printf "\nUsage: make \033[36m<target>\033[0m\n" } \
		/^##@ / { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try it

# The demo and the tests get the control plane by the script and not as a
# prerequisite, since only the script knows where it is in the end.
.PHONY: demo
demo: ## A real API server, two initializers and a tour. ONCE=1 exits after the tour.
	@$(start-demo) $(if $(filter-out 0 false,$(ONCE)),--once) $(ARGS)

# Exit status 3 is the manager's word for "no cluster is configured". Any other
# outcome, a cluster that does not answer included, is the caller's business.
# The shell has to outlive the manager to see it, so it hands on what would stop
# it. In a process group of its own (set -m) the manager gets each signal once:
# it takes a second one for impatience.
.PHONY: run
run: build ## Run the manager against the current kubeconfig context, or an embedded control plane if there is none.
	@set -m; "$(LOCALBIN)/manager" --leader-elect=false --zap-encoder=console $(ARGS) & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :' INT TERM HUP; \
	while rc=0; wait "$$pid" || rc=$$?; kill -0 "$$pid" 2>/dev/null; do :; done; \
	trap - INT TERM HUP; \
	if [ "$$rc" -ne 3 ]; then exit "$$rc"; fi; \
	echo "No cluster is configured, so an embedded control plane is started, with the manager and two initializers." >&2; \
	$(start-demo) --no-tour

##@ Development

.PHONY: manifests
manifests: controller-gen ## Generate the CRDs and the manager's ClusterRole.
	"$(CONTROLLER_GEN)" rbac:roleName=manager-role crd paths=./api/... paths=./internal/... output:crd:artifacts:config=config/crd/bases

# Two runs: the apply configurations refer to types, never to generated methods,
# but a run that fails half-way should at least leave the methods behind.
.PHONY: generate
generate: controller-gen ## Generate deep copies and apply configurations.
	"$(CONTROLLER_GEN)" object:headerFile=hack/boilerplate.go.txt paths=./api/...
	"$(CONTROLLER_GEN)" applyconfiguration:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: api-reference
api-reference: crd-ref-docs ## Generate docs/api-reference.md from the types.
	"$(CRD_REF_DOCS)" --log-level=ERROR --source-path=api/v1alpha1 --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --output-path=docs/api-reference.md

.PHONY: docs-reference
docs-reference: ## Generate docs/reference from the plugin, the manager's flags and metrics, and the API.
	cd hack/docs && go run . --root="$(CURDIR)"

.PHONY: fmt
fmt: ## Run go fmt.
	go fmt ./...
	cd test/benchmark && go fmt ./...

.PHONY: vet
vet: ## Run go vet.
	go vet -tags=e2e ./...
	cd test/benchmark && go vet ./...

.PHONY: lint
lint: golangci-lint ## Run golangci-lint.
	"$(GOLANGCI_LINT)" run --build-tags=e2e
	cd test/benchmark && "$(GOLANGCI_LINT)" run

.PHONY: lint-fix
lint-fix: golangci-lint ## Run golangci-lint and let it fix what it can.
	"$(GOLANGCI_LINT)" run --build-tags=e2e --fix
	cd test/benchmark && "$(GOLANGCI_LINT)" run --fix

.PHONY: lint-config
lint-config: golangci-lint ## Check the configuration of golangci-lint.
	"$(GOLANGCI_LINT)" config verify

##@ Test

# None of these generates or formats anything: a test that rewrites the tree
# hides what is wrong with it. `make verify` looks after that.
.PHONY: test
test: helm kustomize promtool ## Run all tests, against a real API server where they need one, but for test-versions.
	@echo "test/versions is skipped; make test-versions runs it." >&2
	cd hack/image && go test ./...
	cd test/benchmark && go test ./...
	@$(use-control-plane-and-peer) set -x; go test ./... -timeout 60m -coverprofile cover.out $(ARGS)

# The API servers of test-versions, each pinned in hack/controlplane.
VERSIONS ?= 1.30 1.31 1.32 1.33 1.34 1.35 1.36

.PHONY: test-versions
test-versions: ## Run test/versions on the API servers of VERSIONS. Where they have to be built it takes an hour.
	@failed=; for version in $(VERSIONS); do \
		if ! assets="$$(hack/control-plane.sh --version="$$version")" || ! (set -x; NSLIFECYCLE_TEST_VERSIONS=1 \
			KUBEBUILDER_ASSETS="$$assets" go test ./test/versions -count=1 -timeout 30m $(ARGS)); then \
			failed="$$failed $$version"; \
		fi; \
	done; \
	if [ -n "$$failed" ]; then echo "test/versions failed with Kubernetes$$failed." >&2; exit 1; fi

# Those that run against a real API server, but for the demo's.
SUITES ?= ./test/integration ./test/initializer ./test/finalizer ./test/searchindex ./test/finalization ./test/diagnosis ./test/causes ./test/plugin ./test/guardrails ./test/timeouts ./test/metrics ./test/security

.PHONY: test-integration
test-integration: promtool ## Run the suites on a real API server alone, with their narration.
	@$(use-control-plane-and-peer) set -x; go test $(SUITES) -timeout 30m -v -ginkgo.v $(ARGS)

# The cluster that Kind makes goes when the tests are over, whatever came of them.
.PHONY: test-e2e
test-e2e: kustomize build-plugin image-archive $(if $(LOAD_IMAGE),,kind) ## Run the end-to-end tests on a cluster that Kind makes, or with LOAD_IMAGE on that of KUBECONFIG.
ifdef LOAD_IMAGE
	@export IMG="$(IMG)" IMAGE_ARCHIVE="$(CURDIR)/dist/image.tar"; \
	$(LOAD_IMAGE); \
	$(run-e2e)
else
	@kubeconfig="$$(mktemp)"; trap '"$(KIND)" delete cluster --name="$(KIND_CLUSTER)"; rm -f "$$kubeconfig"' EXIT; \
	export KUBECONFIG="$$kubeconfig"; \
	"$(KIND)" create cluster --name="$(KIND_CLUSTER)" --wait=3m $(if $(KIND_NODE_IMAGE),--image="$(KIND_NODE_IMAGE)"); \
	"$(KIND)" load image-archive dist/image.tar --name="$(KIND_CLUSTER)"; \
	$(run-e2e)
endif

# The latest tag before this commit; there has to be one.
FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)

.PHONY: test-upgrade
test-upgrade: ## Upgrade from another version, FROM, with namespaces on their way.
	@[ -n "$(FROM)" ] || { echo "There is no tag to upgrade from: say FROM=..., a tag or commit." >&2; exit 1; }
	@$(use-control-plane) set -x; UPGRADE_FROM="$(FROM)" go test ./test/chaos -count=1 -timeout 30m -v -ginkgo.v \
		-ginkgo.focus="An upgrade" $(ARGS)

.PHONY: bench
bench: ## Run the benchmarks and print their ratios.
	@$(use-control-plane) $(call run-benchmark,.)

.PHONY: bench-finalization
bench-finalization: ## Measure the end of namespaces against kube-controller-manager. ARGS=--quick for a look.
	@$(use-control-plane-with-peer) $(call run-benchmark,./finalization)

.PHONY: bench-initializer
bench-initializer: ## Measure what an initializer adds to the time until a namespace is ready.
	@$(use-control-plane) $(call run-benchmark,./initializer)

.PHONY: bench-plugin
bench-plugin: ## Measure how long the kubectl plugin takes.
	@$(use-control-plane) $(call run-benchmark,./plugin)

.PHONY: control-plane
control-plane: ## Get kube-apiserver, etcd and kubectl for the tests, and print where they are.
	@hack/control-plane.sh

.PHONY: verify
verify: ## Check that the tree is tidy, generated, formatted, linted and committed.
	go mod tidy -diff
	for file in hack/controlplane/go.mod hack/controlplane/*/go.mod; do (cd "$${file%/*}" && go mod tidy -diff); done
	cd hack/image && go mod tidy -diff
	cd test/benchmark && go mod tidy -diff
	cd hack/promtool && go mod tidy -diff
	cd hack/gojq && go mod tidy -diff
	cd hack/docs && go mod tidy -diff
	@$(MAKE) --no-print-directory manifests generate api-reference docs-reference build-installer IMG=ghcr.io/nslifecycle/nslifecycle:latest
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then \
		echo "Not formatted, run \`make fmt\`:" >&2; echo "$$unformatted" >&2; exit 1; \
	fi
	@$(MAKE) --no-print-directory vet verify-kustomize verify-chart verify-workflows lint-config lint verify-clean

# The build of every kustomization, also of those that no other one includes.
.PHONY: verify-kustomize
verify-kustomize: kustomize
	@find config -name kustomization.yaml -print | LC_ALL=C sort | while read -r file; do \
		echo "kustomize build $${file%/*}"; \
		"$(KUSTOMIZE)" build "$${file%/*}" >/dev/null; \
	done

.PHONY: verify-chart
verify-chart: helm
	"$(HELM)" lint --strict --kube-version=1.36 dist/chart

.PHONY: verify-workflows
verify-workflows: actionlint
	"$(ACTIONLINT)"

# Not part of verify: what is known of a vulnerability changes from day to day, and the tree does not.
.PHONY: vulncheck
vulncheck: govulncheck ## Look for known vulnerabilities in what is called.
	"$(GOVULNCHECK)" ./...
	"$(GOVULNCHECK)" -C hack/image ./...
	"$(GOVULNCHECK)" -C test/benchmark ./...

.PHONY: verify-clean
verify-clean:
	@changed="$$(git status --porcelain)"; \
	if [ -n "$$changed" ]; then \
		echo "These files differ from what is committed. If generated files are among them, commit them as they are now:" >&2; \
		echo "$$changed" >&2; exit 1; \
	fi

##@ Build

# Generated files are committed, and `make verify` keeps them current: a build
# needs no tool but Go.
.PHONY: build
build: ## Build the manager.
	go build -trimpath -o "$(LOCALBIN)/manager" ./cmd

# kubectl finds both names in PATH: the second one completes the arguments of the first.
.PHONY: build-plugin
build-plugin: ## Build the kubectl plugin.
	go build -trimpath -o "$(LOCALBIN)/kubectl-nslifecycle" ./cmd/kubectl-nslifecycle
	ln -sfn kubectl-nslifecycle "$(LOCALBIN)/kubectl_complete-nslifecycle"

.PHONY: docker-build
docker-build: ## Build the image of the manager for this machine's platform.
	$(CONTAINER_TOOL) build $(image-version) -t "$(IMG)" .

.PHONY: docker-push
docker-push: ## Push the image of the manager.
	$(CONTAINER_TOOL) push "$(IMG)"

.PHONY: docker-buildx
docker-buildx: ## Build the image for all PLATFORMS and push it.
	$(CONTAINER_TOOL) buildx build --push --platform="$(PLATFORMS)" $(image-version) -t "$(IMG)" .

# Both are committed, so that they can be had from a tag without any tool.
.PHONY: build-installer
build-installer: kustomize ## Write dist/install.yaml, and what dist/chart takes from it.
	@$(render-install) mv "$$overlay/install.yaml" dist/install.yaml; echo "Wrote dist/install.yaml."; \
	printf '%s\n' 'namespace: nslifecycle-system' 'namePrefix: nslifecycle-' 'sortOptions:' '  order: fifo' \
		'resources:' '- ../../config/protection' '- ../../config/expiry' '- ../../config/prometheus' \
		>"$$overlay/kustomization.yaml"; \
	"$(KUSTOMIZE)" build "$$overlay" >"$$overlay/optional.yaml"; \
	go run ./hack/chart dist/install.yaml "$$overlay/optional.yaml" dist/chart/files

# A module of its own: what makes the image is no part of the manager.
.PHONY: image-archive
image-archive: ## Write dist/image.tar, an OCI archive for amd64 and arm64, without a container engine.
	cd hack/image && go run . --root="$(CURDIR)" --name="$(IMG)" --output="$(CURDIR)/dist/image.tar" \
		--platforms="$(ARCHIVE_PLATFORMS)"

.PHONY: image-push
image-push: ## Push an image archive, ARCHIVE=dist/image.tar, with its bills of materials as IMG.
	cd hack/image && go run . push "$(abspath $(ARCHIVE))" "$(IMG)"

# From what is committed: the revision in the programs has to be the truth. All times are that
# of the commit, so everybody gets the same files, and the workflow of a release does no more.
.PHONY: release-artifacts
release-artifacts: ## Write to dist/release what a release consists of, VERSION=v0.1.0.
	@[ -n "$(VERSION)" ] || { echo "Say which release: make release-artifacts VERSION=v0.1.0" >&2; exit 1; }
	@changed="$$(git status --porcelain)"; \
	if [ -n "$$changed" ]; then \
		echo "Commit these changes first, or stash them: a release is made of a commit." >&2; \
		echo "$$changed" >&2; exit 1; \
	fi
	rm -rf dist/release
	@set -x; revision="$$(git rev-parse HEAD)"; created="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"; \
	cd hack/image; \
	go run . --root="$(CURDIR)" --name="$(RELEASE_IMAGE):$(VERSION)" --version="$(VERSION)" \
		--revision="$$revision" --created="$$created" --platforms="$(ARCHIVE_PLATFORMS)" \
		--output="$(CURDIR)/dist/release/nslifecycle-image_$(VERSION).tar"; \
	go run ./release --root="$(CURDIR)" --image="$(RELEASE_IMAGE)" --version="$(VERSION)" \
		--revision="$$revision" --created="$$created" --platforms="$(RELEASE_PLATFORMS)" \
		--output="$(CURDIR)/dist/release"

##@ Deployment

ignore-not-found ?= true

.PHONY: install
install: kustomize ## Install the CRDs.
	"$(KUSTOMIZE)" build config/crd | $(KUBECTL) apply -f -

# An API server that starts while a policy's parameters have no CRD refuses what
# the policy matches: every new namespace. So the policies go first here, too.
.PHONY: uninstall
uninstall: kustomize ## Remove the CRDs, the policies that read them, and all configurations.
	@$(delete-policies)
	"$(KUSTOMIZE)" build config/crd | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

.PHONY: deploy
deploy: kustomize ## Install everything, with the manager's image from IMG.
	@$(render-install) $(KUBECTL) apply -f "$$overlay/install.yaml"

# The manager loses its rights with the rest, and it would not empty the namespace that it
# runs in anyway. Where the built-in namespace controller is off nobody is left to end it,
# so a manager outside of the cluster does.
# config/compat: the policies have gone by then, and without two kinds of them, which are not
# served before 1.36, it has all that config/default has.
.PHONY: undeploy
undeploy: kustomize build ## Remove everything, in an order that never blocks namespaces.
	@$(delete-policies)
	"$(KUSTOMIZE)" build config/compat | $(KUBECTL) delete --wait=false --ignore-not-found=$(ignore-not-found) -f -
	@$(await-end-of-system-namespace)

##@ Tools

ACTIONLINT_MODULE := github.com/rhysd/actionlint/cmd/actionlint
CONTROLLER_GEN_MODULE := sigs.k8s.io/controller-tools/cmd/controller-gen
COSIGN_MODULE := github.com/sigstore/cosign/v3/cmd/cosign
CRD_REF_DOCS_MODULE := github.com/elastic/crd-ref-docs
GOLANGCI_LINT_MODULE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
GOVULNCHECK_MODULE := golang.org/x/vuln/cmd/govulncheck
HELM_MODULE := helm.sh/helm/v4/cmd/helm
KIND_MODULE := sigs.k8s.io/kind
KUSTOMIZE_MODULE := sigs.k8s.io/kustomize/kustomize/v5
SETUP_ENVTEST_MODULE := sigs.k8s.io/controller-runtime/tools/setup-envtest

.PHONY: actionlint
actionlint: ## Install actionlint to bin/.
	@$(call install-tool,actionlint,$(ACTIONLINT_MODULE),$(ACTIONLINT_VERSION))

.PHONY: controller-gen
controller-gen: ## Install controller-gen to bin/.
	@$(call install-tool,controller-gen,$(CONTROLLER_GEN_MODULE),$(CONTROLLER_GEN_VERSION))

# It signs a release.
.PHONY: cosign
cosign: ## Install cosign to bin/.
	@$(call install-tool,cosign,$(COSIGN_MODULE),$(COSIGN_VERSION))

.PHONY: crd-ref-docs
crd-ref-docs: ## Install crd-ref-docs to bin/.
	@$(call install-tool,crd-ref-docs,$(CRD_REF_DOCS_MODULE),$(CRD_REF_DOCS_VERSION))

.PHONY: golangci-lint
golangci-lint: ## Install golangci-lint to bin/.
	@$(call install-tool,golangci-lint,$(GOLANGCI_LINT_MODULE),$(GOLANGCI_LINT_VERSION))

.PHONY: govulncheck
govulncheck: ## Install govulncheck to bin/.
	@$(call install-tool,govulncheck,$(GOVULNCHECK_MODULE),$(GOVULNCHECK_VERSION))

.PHONY: helm
helm: ## Install helm to bin/.
	@$(call install-tool,helm,$(HELM_MODULE),$(HELM_VERSION))

.PHONY: kind
kind: ## Install kind to bin/.
	@$(call install-tool,kind,$(KIND_MODULE),$(KIND_VERSION))

.PHONY: kustomize
kustomize: ## Install kustomize to bin/.
	@$(call install-tool,kustomize,$(KUSTOMIZE_MODULE),$(KUSTOMIZE_VERSION))

# From a module of its own, since `go install` refuses modules with a replace directive. The
# tag leaves out what finds targets in clouds, which is most of it. It is kept by its version,
# as the others are: the build takes minutes.
.PHONY: promtool
promtool: ## Build promtool to bin/, for the tests of alerts and dashboard.
	@version="$$(cd hack/promtool && go list -m -f '{{.Version}}' github.com/prometheus/prometheus)"; \
	if [ ! -x "$(LOCALBIN)/promtool-$$version" ]; then \
		echo "Building promtool $$version ..." >&2; \
		mkdir -p "$(LOCALBIN)"; \
		tmp="$$(mktemp -d "$(LOCALBIN)/.promtool.XXXXXX")"; trap 'rm -rf "$$tmp"' EXIT; \
		(cd hack/promtool && go build -trimpath -tags remove_all_sd -o "$$tmp/promtool" \
			github.com/prometheus/prometheus/cmd/promtool); \
		mv -f "$$tmp/promtool" "$(LOCALBIN)/promtool-$$version"; \
	fi; \
	ln -sfn "promtool-$$version" "$(LOCALBIN)/promtool"

.PHONY: setup-envtest
setup-envtest: ## Install setup-envtest to bin/.
	@$(call install-tool,setup-envtest,$(SETUP_ENVTEST_MODULE),$(SETUP_ENVTEST_VERSION))

# install-tool(name, package, version): bin/<name> becomes a link to
# bin/<name>-<version>, so that a new version is installed as soon as it is
# pinned, and going back to an old one costs nothing. The directory in between
# keeps an interrupted installation from passing for a tool.
define install-tool
if [ ! -x "$(LOCALBIN)/$(1)-$(3)" ]; then \
	echo "Installing $(1) $(3) ..." >&2; \
	mkdir -p "$(LOCALBIN)"; \
	tmp="$$(mktemp -d "$(LOCALBIN)/.$(1).XXXXXX")"; trap 'rm -rf "$$tmp"' EXIT; \
	GOBIN="$$tmp" GOOS= GOARCH= GOFLAGS= go install "$(2)@$(3)"; \
	mv -f "$$tmp/$(1)" "$(LOCALBIN)/$(1)-$(3)"; \
fi; \
ln -sfn "$(1)-$(3)" "$(LOCALBIN)/$(1)"
endef

# In a statement of its own: a failure inside an assignment in front of a
# command would go unnoticed.
define use-control-plane
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh)"; export KUBEBUILDER_ASSETS;
endef

# With kube-controller-manager for the tests that run beside it. A control plane that the
# user brings does not need to have one: these tests are skipped then, and say so.
define use-control-plane-and-peer
peer=--with-controller-manager; \
if [ -n "$$KUBEBUILDER_ASSETS" ] && [ ! -x "$$KUBEBUILDER_ASSETS/kube-controller-manager" ]; then \
	echo "There is no kube-controller-manager in KUBEBUILDER_ASSETS, so the tests beside it are skipped." >&2; peer=; \
fi; \
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh $$peer)"; export KUBEBUILDER_ASSETS;
endef

define use-control-plane-with-peer
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh --with-controller-manager)"; export KUBEBUILDER_ASSETS;
endef

# run-benchmark(package): builds a program of the module test/benchmark and runs it here, so that
# paths in ARGS are relative to this directory. `go run` would need test/benchmark as its directory.
define run-benchmark
set -x; go build -C test/benchmark -o "$(LOCALBIN)/benchmarks/" $(1); \
"$(LOCALBIN)/benchmarks/$(if $(filter .,$(1)),benchmark,$(notdir $(1)))" $(ARGS)
endef

# A build tag of their own, so that go test ./... does not look for a cluster.
define run-e2e
set -x; IMG="$(IMG)" KUBECTL="$(KUBECTL)" go test -tags=e2e -count=1 ./test/e2e -timeout 60m -v -ginkgo.v $(ARGS)
endef

# What the manager in the image says of itself; git is asked when the image is built.
define image-version
--build-arg=VERSION="$$(git describe --always --dirty)" --build-arg=REVISION="$$(git rev-parse HEAD)"
endef

# exec, so that Ctrl-C ends the demo itself and nothing stands in between.
define start-demo
$(use-control-plane) go build -o "$(LOCALBIN)/demo" ./test/demo; exec "$(LOCALBIN)/demo"
endef

# Renders config/default with the image IMG to $$overlay/install.yaml. The overlay
# lies in bin/, where git does not see it: a deployment must not change the tree.
define render-install
overlay="$$(mktemp -d "$(LOCALBIN)/.overlay.XXXXXX")"; trap 'rm -rf "$$overlay"' EXIT; \
printf '%s\n' 'resources:' '- ../../config/default' 'sortOptions:' '  order: fifo' >"$$overlay/kustomization.yaml"; \
(cd "$$overlay" && "$(KUSTOMIZE)" edit set image "ghcr.io/nslifecycle/nslifecycle=$(IMG)"); \
"$(KUSTOMIZE)" build "$$overlay" >"$$overlay/install.yaml"; \
grep -qF -- 'image: $(IMG)' "$$overlay/install.yaml" || { echo "The image $(IMG) did not get into the Deployment." >&2; exit 1; };
endef

# In a process group of its own, for the same reasons as in run.
define await-end-of-system-namespace
wait-for-end() { \
	[ -z "$$($(KUBECTL) get namespace nslifecycle-system --ignore-not-found --output=name)" ] || \
		$(KUBECTL) wait --for=delete namespace/nslifecycle-system --timeout="$$1"; \
}; \
if ! wait-for-end "$(UNDEPLOY_PATIENCE)" 2>/dev/null; then \
	echo "Nobody has ended namespace nslifecycle-system within $(UNDEPLOY_PATIENCE), so a manager is run here until it has gone." >&2; \
	set -m; "$(LOCALBIN)/manager" --controllers=finalization --leader-elect=false --health-probe-bind-address=0 \
		--zap-encoder=console --zap-log-level=error & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :; wait "$$pid" || :' EXIT; \
	wait-for-end 5m; \
fi
endef

# Bindings before policies, and both before everything else: whatever is missing
# afterwards, nothing asks for it any more. Clusters before 1.36 do not serve all
# four kinds.
define delete-policies
served="$$($(KUBECTL) api-resources --api-group=admissionregistration.k8s.io -o name)"; \
for kind in mutatingadmissionpolicybindings validatingadmissionpolicybindings mutatingadmissionpolicies validatingadmissionpolicies; do \
	if ! grep -q "^$$kind\." <<<"$$served"; then continue; fi; \
	$(KUBECTL) delete "$$kind.admissionregistration.k8s.io" -l app.kubernetes.io/name=nslifecycle --ignore-not-found; \
done
endef
