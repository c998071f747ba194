# The image that the docker-* targets build and deploy installs.
IMG ?= ghcr.io/nslifecycle/nslifecycle:latest
# Additional arguments for run, demo, the benchmarks and test, for example `make demo ARGS=--once`.
ARGS ?=
# The tool that builds images: docker, or a compatible tool.
CONTAINER_TOOL ?= docker
# The platforms for which docker-buildx builds images.
PLATFORMS ?= linux/amd64,linux/arm64,linux/s390x,linux/ppc64le
# The platforms for which image-archive builds images.
ARCHIVE_PLATFORMS ?= linux/amd64,linux/arm64
# The command that loads the image in $$IMAGE_ARCHIVE into the cluster in KUBECONFIG as $$IMG, for
# test-e2e. Without it, test-e2e creates a Kind cluster.
LOAD_IMAGE ?=
# The name and the node image of the Kind cluster. If the image is empty, Kind uses its default.
KIND_CLUSTER ?= nslifecycle-test-e2e
KIND_NODE_IMAGE ?=
# The archive that image-push pushes.
ARCHIVE ?= dist/image.tar
# The image name in release-artifacts, and the platforms of the released programs.
RELEASE_IMAGE ?= ghcr.io/nslifecycle/nslifecycle
RELEASE_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# How long undeploy waits for the deletion of the templates, and how long for the deletion of the system
# namespace before it runs a manager to finalize the namespace.
UNDEPLOY_TIMEOUT ?= 60s
KUBECTL ?= kubectl

# Tools. All versions are pinned here.
ACTIONLINT_VERSION ?= v1.7.12
CONTROLLER_GEN_VERSION ?= v0.23.0
COSIGN_VERSION ?= v3.1.3
CRD_REF_DOCS_VERSION ?= v0.3.0
GOLANGCI_LINT_VERSION ?= v2.15.0
GOVULNCHECK_VERSION ?= v1.8.0
HELM_VERSION ?= v4.3.1
KIND_VERSION ?= v0.33.0
# v5.8.3 requires Go 1.27, but this project builds with 1.26.
KUSTOMIZE_VERSION ?= v5.8.2
SETUP_ENVTEST_VERSION ?= v0.25.1

# hack/control-plane.sh and the overlay of deploy depend on this path.
LOCALBIN := $(CURDIR)/bin
ACTIONLINT := $(LOCALBIN)/actionlint
CONTROLLER_GEN := $(LOCALBIN)/controller-gen
CRD_REF_DOCS := $(LOCALBIN)/crd-ref-docs
GINKGO := $(LOCALBIN)/ginkgo
GOLANGCI_LINT := $(LOCALBIN)/golangci-lint
GOVULNCHECK := $(LOCALBIN)/govulncheck
HELM := $(LOCALBIN)/helm
KIND := $(LOCALBIN)/kind
KUSTOMIZE := $(LOCALBIN)/kustomize
SETUP_ENVTEST := $(LOCALBIN)/setup-envtest

# The image is also built without cgo. With cgo, kustomize, which is linked into the kubectl plugin, uses Go's package
# plugin, and linking takes minutes.
export CGO_ENABLED ?= 0

# Stop at the first error, even in a pipeline.
SHELL = /usr/bin/env bash -o pipefail
.SHELLFLAGS = -ec

.DEFAULT_GOAL := help

space := $() $()

.PHONY: all
all: build

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; printf "\nUsage: make \033[36m<target>\033[0m\n" } \
		/^##@ / { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try it

# The recipes run hack/control-plane.sh instead of depending on a target, since only the script
# knows the path of the binaries.
.PHONY: demo
demo: ## Run a real API server and two initializers, and show a tour. ONCE=1 exits after the tour.
	@$(start-demo) $(if $(filter-out 0 false,$(ONCE)),--once) $(ARGS)

# Exit status 3 of the manager means that no cluster is configured. Any other status is returned to
# the caller. The shell must outlive the manager to read the status, so it forwards signals. In a
# separate process group (set -m), the manager receives each signal only once: a second signal would
# terminate it immediately.
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
manifests: controller-gen ## Generate the CRDs, and one ClusterRole for each part of the operator.
	"$(CONTROLLER_GEN)" crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	"$(CONTROLLER_GEN)" rbac:roleName=manager-role paths=./internal/controller/... paths=./internal/manager/... \
		paths=./internal/initializerhealth/... paths=./internal/template/...
	"$(CONTROLLER_GEN)" rbac:roleName=finalization-role,fileName=finalization_role.yaml paths=./internal/finalization/... \
		paths=./internal/graceperiod/...
	"$(CONTROLLER_GEN)" rbac:roleName=admission-role,fileName=admission_role.yaml paths=./internal/policyverifier/... \
		paths=./internal/mutation/...

# Two runs, so that the methods are generated even if the apply configurations fail.
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
lint-fix: golangci-lint ## Run golangci-lint and apply its fixes.
	"$(GOLANGCI_LINT)" run --build-tags=e2e --fix
	cd test/benchmark && "$(GOLANGCI_LINT)" run --fix

.PHONY: lint-config
lint-config: golangci-lint ## Check the configuration of golangci-lint.
	"$(GOLANGCI_LINT)" config verify

##@ Test

# The suites that ginkgo runs in PROCS processes each. Every process has its own control
# plane, so specs do not interfere. The specs mostly wait, hence more
# processes than processors. The specs of servers run in one process, since each needs two API servers.
PARALLEL_SUITES := finalization security causes integration diagnosis initializer hold templateobjects servers admission mutation
PROCS ?= 4
# The suites that only test-long runs, in addition to the specs of PARALLEL_SUITES with the label "long".
LONG_SUITES := chaos
# The packages that go test runs, PACKAGES of them concurrently.
PACKAGES ?= 2

# No test target generates or formats files, since this would hide errors in the
# tree. `make verify` checks the tree.
.PHONY: test
test: helm kustomize promtool ginkgo ## Run all tests except test-long and test-versions.
	@echo "Skipping $(LONG_SUITES:%=test/%) and specs with the label \"long\": run make test-long." >&2
	@echo "Skipping other Kubernetes versions: run make test-versions." >&2
	cd hack/image && go test ./...
	cd test/benchmark && go test ./...
	@$(use-control-plane-and-peer) $(MAKE) --no-print-directory -j2 --keep-going test-packages test-suites

.PHONY: test-packages
test-packages:
	@packages="$$(go list ./... | grep -vE "/test/($(subst $(space),|,$(PARALLEL_SUITES) $(LONG_SUITES)))$$")"; \
	set -x; go test -p $(PACKAGES) -timeout 30m $(ARGS) $$packages

.PHONY: test-suites
test-suites:
	$(call run-suites,--label-filter='!long' $(PARALLEL_SUITES:%=./test/%))

.PHONY: test-long
test-long: ginkgo ## Run the long tests, which repeatedly kill managers and API servers.
	@$(use-control-plane-and-peer) set -x; failed=; \
	$(call run-suites,--label-filter=long $(PARALLEL_SUITES:%=./test/%)) || failed=1; \
	for members in 1 3; do \
		NSLIFECYCLE_TEST_API_SERVERS=3 NSLIFECYCLE_TEST_ETCD_MEMBERS=$$members go test -count=1 -timeout 30m ./test/servers \
			-ginkgo.label-filter='!long' || failed=1; \
	done; \
	for server in a b; do \
		NSLIFECYCLE_TEST_API_SERVER_AHEAD=$$server go test -count=1 -timeout 60m ./test/servers -ginkgo.label-filter='!long' || \
			failed=1; \
	done; \
	go test -timeout 60m $(ARGS) $(LONG_SUITES:%=./test/%) || failed=1; \
	[ -z "$$failed" ]

# The managers that the tests build and run as processes have the race detector, too. All processes write reports to
# files, since the output of killed and of parallel processes can be lost. TestManyBombs limits time and memory, which
# the race detector multiplies.
.PHONY: test-race
test-race: helm kustomize promtool ginkgo ## Run the tests of make test with the race detector. Needs a C compiler.
	@reports="$$(mktemp -d)"; trap 'rm -rf "$$reports"' EXIT; failed=; $(use-control-plane-and-peer) \
	CGO_ENABLED=1 GOFLAGS=-race GORACE="log_path=$$reports/race" \
		$(MAKE) --no-print-directory --keep-going test-packages test-suites ARGS=-skip=TestManyBombs || failed=1; \
	for report in "$$reports"/*; do if [ -f "$$report" ]; then cat "$$report"; failed=1; fi; done; \
	[ -z "$$failed" ]

.PHONY: security-table
security-table: ## Write the table in SECURITY.md about what a stolen token of the operator can do.
	@$(use-control-plane) NSLIFECYCLE_TEST_WRITE_TABLE=true go test ./test/stolentoken -count=1 -timeout 30m $(ARGS)

TIMES ?= 20
# The target that test-repeat runs, and its variables.
REPEAT ?= test ARGS=-count=1

.PHONY: test-repeat
test-repeat: ## Run make test, or make REPEAT, TIMES times, and print which tests failed how often.
	@hack/repeat.sh $(TIMES) $(REPEAT)

.PHONY: test-coverage
test-coverage: helm kustomize promtool ## Run all tests with a coverage profile in cover.out.
	@$(use-control-plane-and-peer) set -x; go test ./... -timeout 60m -coverprofile cover.out $(ARGS)

# The API servers of test-versions, each pinned in hack/controlplane, and the suites that show the same behavior on all of
# them.
VERSIONS ?= 1.33 1.34 1.35 1.36 1.37
VERSION_SUITES ?= admission finalization hold initializer install integration mutation security selfservice templateobjects templates timeouts

.PHONY: test-versions
test-versions: helm kustomize ginkgo ## Run VERSION_SUITES on the API servers of VERSIONS. Building them takes an hour.
	@failed=; for version in $(VERSIONS); do \
		if ! assets="$$(hack/control-plane.sh --version="$$version" --with-controller-manager)" || \
			! KUBEBUILDER_ASSETS="$$assets" $(MAKE) --no-print-directory --keep-going test-version-suites test-version-packages; then \
			failed="$$failed $$version"; \
		fi; \
	done; \
	if [ -n "$$failed" ]; then echo "Suites failed with Kubernetes$$failed." >&2; exit 1; fi

.PHONY: test-version-suites
test-version-suites:
	$(call run-suites,--label-filter='!long' $(ARGS) $(addprefix ./test/,$(filter $(PARALLEL_SUITES),$(VERSION_SUITES))))

.PHONY: test-version-packages
test-version-packages:
	go test -count=1 -timeout 30m $(ARGS) $(addprefix ./test/,$(filter-out $(PARALLEL_SUITES),$(VERSION_SUITES)))

# The API servers of test-api-server-upgrade, in the order of the upgrade.
UPGRADE_VERSIONS ?= 1.35 1.36 1.37

.PHONY: test-api-server-upgrade
test-api-server-upgrade: ## Test upgrades and downgrades of API servers under load. Building them takes half an hour.
	@directories=; for version in $(UPGRADE_VERSIONS); do \
		assets="$$(hack/control-plane.sh --version="$$version")" || exit; directories="$${directories:+$$directories:}$$assets"; \
	done; set -x; KUBEBUILDER_ASSETS="$${directories%%:*}" CHAOS_API_SERVERS="$$directories" \
		go test ./test/chaos -count=1 -v -timeout 60m -ginkgo.focus='API servers' $(ARGS)

# The suites of docs/reliability.md, with all specs. ARGS contains flags of go test, for example
# ARGS=-ginkgo.seed=1. The output contains the seed and the report entries of the specs.
.PHONY: test-chaos test-model test-security test-servers
test-chaos test-model test-security test-servers:
	@$(use-control-plane-and-peer) set -x; go test ./test/$(@:test-%=%) -count=1 -v -timeout 2h $(ARGS)

# The suites that test-integration runs: those that use a real API server, except the tests of the demo.
SUITES ?= ./test/integration ./test/initializer ./test/finalizer ./test/searchindex ./test/finalization ./test/diagnosis ./test/causes ./test/plugin ./test/guardrails ./test/selfservice ./test/templates ./test/timeouts ./test/metrics ./test/security ./test/servers

.PHONY: test-integration
test-integration: promtool ginkgo ## Run SUITES verbosely. ARGS=--focus=TEXT selects specs.
	@$(use-control-plane-and-peer) $(call run-suites,-v $(ARGS) $(SUITES))

# The Kind cluster is deleted after the tests, even if they fail.
.PHONY: test-e2e
test-e2e: kustomize build-plugin image-archive $(if $(LOAD_IMAGE),,kind) ## Run the end-to-end tests on a Kind cluster, or with LOAD_IMAGE on the cluster of KUBECONFIG.
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

# The latest tag before this commit. Without a tag, FROM must be set.
FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)

.PHONY: test-upgrade
test-upgrade: ## Test the upgrade from version FROM while namespaces are initialized and finalized.
	@[ -n "$(FROM)" ] || { echo "There is no tag to upgrade from. Set FROM to a tag or commit." >&2; exit 1; }
	@$(use-control-plane) set -x; UPGRADE_FROM="$(FROM)" go test ./test/chaos -count=1 -timeout 30m -v -ginkgo.v \
		-ginkgo.focus="An upgrade" $(ARGS)

.PHONY: bench
bench: ## Run the benchmarks and print their ratios.
	@$(use-control-plane) $(call run-benchmark,.)

.PHONY: bench-finalization
bench-finalization: ## Compare finalization with kube-controller-manager. ARGS=--quick for a short run.
	@$(use-control-plane-with-peer) $(call run-benchmark,./finalization)

.PHONY: bench-initializer
bench-initializer: ## Measure the delay that an initializer adds to the creation of a namespace.
	@$(use-control-plane) $(call run-benchmark,./initializer)

.PHONY: bench-plugin
bench-plugin: ## Measure the duration of the commands of the kubectl plugin.
	@$(use-control-plane) $(call run-benchmark,./plugin)

.PHONY: bench-scale
bench-scale: ## Measure the cost of nslifecycle by the number of namespaces. ARGS=--quick for a short run.
	@$(use-control-plane) $(call run-benchmark,./scale)

.PHONY: bench-templates
bench-templates: kyverno ## Compare NamespaceTemplates with Kyverno and a bare client. ARGS=--quick for a short run.
	@$(use-control-plane-with-peer) $(call run-benchmark,./templates)

.PHONY: control-plane
control-plane: ## Download or build kube-apiserver, etcd and kubectl for the tests, and print their path.
	@hack/control-plane.sh

.PHONY: verify
verify: ## Check that the tree is tidy, generated, formatted, linted and committed.
	for file in $$(git ls-files go.mod '*/go.mod'); do (cd "$$(dirname "$$file")" && go mod tidy -diff); done
	@$(MAKE) --no-print-directory manifests generate api-reference docs-reference build-installer IMG=ghcr.io/nslifecycle/nslifecycle:latest
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then \
		echo "Not formatted, run \`make fmt\`:" >&2; echo "$$unformatted" >&2; exit 1; \
	fi
	@$(MAKE) --no-print-directory vet verify-kustomize verify-chart verify-workflows language lint-config lint verify-clean

# Builds every kustomization, including those that no other kustomization includes.
.PHONY: verify-kustomize
verify-kustomize: kustomize
	@find config -name kustomization.yaml -print | LC_ALL=C sort | while read -r file; do \
		echo "kustomize build $${file%/*}"; \
		"$(KUSTOMIZE)" build "$${file%/*}" >/dev/null; \
	done

.PHONY: verify-chart
verify-chart: helm
	"$(HELM)" lint --strict --kube-version=1.33 dist/chart

.PHONY: verify-workflows
verify-workflows: actionlint
	"$(ACTIONLINT)"

.PHONY: language
language: vale ## Check docs, comments, strings and names against the terms in hack/vale.
	"$(LOCALBIN)/vale" --config=hack/vale/vale.ini --output=line $$(git ls-files \
		'*.md' '*.go' '*.yaml' '*.yml' '*.sh' '*.tpl' Makefile ':!hack/vale' ':!dist' ':!**/zz_generated.*')

# Not part of verify: the vulnerability database changes independently of the tree.
.PHONY: vulncheck
vulncheck: govulncheck ## Check for known vulnerabilities in called code.
	"$(GOVULNCHECK)" ./...
	"$(GOVULNCHECK)" -C hack/image ./...
	"$(GOVULNCHECK)" -C test/benchmark ./...

.PHONY: verify-clean
verify-clean:
	@changed="$$(git status --porcelain)"; \
	if [ -n "$$changed" ]; then \
		echo "The tree is not clean. Commit these files, or revert them if they are not generated:" >&2; \
		echo "$$changed" >&2; exit 1; \
	fi

##@ Build

# Generated files are committed and checked by `make verify`, so that a build requires only Go.
.PHONY: build
build: ## Build the manager.
	go build -trimpath -o "$(LOCALBIN)/manager" ./cmd

# kubectl finds both programs in PATH; the second one provides the shell completion of the first.
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

# Both outputs are committed, so that users can download them from a tag.
.PHONY: build-installer
build-installer: kustomize ## Write dist/install.yaml and the generated parts of dist/chart.
	@$(render-install) mv "$$overlay/install.yaml" dist/install.yaml; echo "Wrote dist/install.yaml."; \
	printf '%s\n' 'namespace: nslifecycle-system' 'namePrefix: nslifecycle-' 'sortOptions:' '  order: fifo' \
		'resources:' '- ../../config/protection' '- ../../config/expiry' '- ../../config/owners' '- ../../config/prometheus' '- ../../config/manager/finalization' \
		>"$$overlay/kustomization.yaml"; \
	"$(KUSTOMIZE)" build "$$overlay" >"$$overlay/optional.yaml"; \
	for file in config/mutating/*.yaml; do echo ---; cat "$$file"; done >>"$$overlay/optional.yaml"; \
	go run ./hack/chart dist/install.yaml "$$overlay/optional.yaml" dist/chart/files

# A separate module, so that the manager does not depend on the image builder.
.PHONY: image-archive
image-archive: ## Write dist/image.tar, an OCI archive for amd64 and arm64, without a container engine.
	cd hack/image && go run . --root="$(CURDIR)" --name="$(IMG)" --output="$(CURDIR)/dist/image.tar" \
		--platforms="$(ARCHIVE_PLATFORMS)"

.PHONY: image-push
image-push: ## Push an image archive, ARCHIVE=dist/image.tar, and its SBOMs as IMG.
	cd hack/image && go run . push "$(abspath $(ARCHIVE))" "$(IMG)"

# Requires a clean tree, since the programs contain the revision. All timestamps are that of the
# commit, so that the files are reproducible. The release workflow runs only this target.
.PHONY: release-artifacts
release-artifacts: ## Write the files of a release to dist/release, VERSION=v0.1.0.
	@[ -n "$(VERSION)" ] || { echo "Set VERSION, for example: make release-artifacts VERSION=v0.1.0" >&2; exit 1; }
	@changed="$$(git status --porcelain)"; \
	if [ -n "$$changed" ]; then \
		echo "Commit or stash these changes first: a release is built from a commit." >&2; \
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

# An API server that starts while the CRD of a policy's parameters is missing rejects every request
# that the policy matches: all new namespaces. Therefore the policies are deleted first.
.PHONY: uninstall
uninstall: kustomize ## Remove the CRDs, the policies that read them, and all configurations.
	@$(delete-templates)
	@$(delete-policies)
	"$(KUSTOMIZE)" build config/crd | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

.PHONY: deploy
deploy: kustomize ## Install everything, with the manager's image from IMG.
	@$(render-install) $(KUBECTL) apply -f "$$overlay/install.yaml"; $(delete-obsolete)

# The manager loses its permissions, and never deletes the content of its own namespace. If the
# built-in namespace controller is off, a local manager finalizes the namespace. At this point, all policies are
# already deleted.
.PHONY: undeploy
undeploy: kustomize build ## Remove everything, in an order that never blocks namespaces.
	@$(delete-templates)
	@$(delete-policies)
	"$(KUSTOMIZE)" build config/default | $(KUBECTL) delete --wait=false --ignore-not-found=$(ignore-not-found) -f -
	$(KUBECTL) delete clusterrolebindings,clusterroles --selector=app.kubernetes.io/name=nslifecycle
	@$(wait-for-system-namespace)

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

# cosign signs releases.
.PHONY: cosign
cosign: ## Install cosign to bin/.
	@$(call install-tool,cosign,$(COSIGN_MODULE),$(COSIGN_VERSION))

.PHONY: crd-ref-docs
crd-ref-docs: ## Install crd-ref-docs to bin/.
	@$(call install-tool,crd-ref-docs,$(CRD_REF_DOCS_MODULE),$(CRD_REF_DOCS_VERSION))

# The command must have the version of the library in go.mod.
.PHONY: ginkgo
ginkgo: ## Build ginkgo to bin/.
	@go build -o "$(GINKGO)" github.com/onsi/ginkgo/v2/ginkgo

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

# Built from a separate module, since `go install` rejects modules with a replace directive. The
# build tag excludes service discovery for cloud providers. The binary is cached by version, since
# the build takes minutes.
.PHONY: promtool
promtool: ## Build promtool to bin/, for the tests of the alerts and the dashboard.
	@$(call build-tool,promtool,github.com/prometheus/prometheus,cmd/promtool,-tags remove_all_sd)

# The controllers that a GeneratingPolicy needs, and the manifest of the installation. Building them
# takes ten minutes and 3 GB in Go's build cache.
KYVERNO_MODULE := github.com/kyverno/kyverno

.PHONY: kyverno
kyverno: ## Build Kyverno to bin/kyverno/, for bench-templates.
	@cd hack/kyverno; version="$$(go list -m -f '{{.Version}}' $(KYVERNO_MODULE))"; \
	if [ ! -d "$(LOCALBIN)/kyverno-$$version" ]; then \
		echo "Building Kyverno $$version ..." >&2; \
		mkdir -p "$(LOCALBIN)"; \
		tmp="$$(mktemp -d "$(LOCALBIN)/.kyverno.XXXXXX")"; trap 'rm -rf "$$tmp"' EXIT; \
		go build -trimpath -ldflags='-s -w' -o "$$tmp/" \
			$(KYVERNO_MODULE)/cmd/kyverno $(KYVERNO_MODULE)/cmd/background-controller; \
		install -m 644 "$$(go list -m -f '{{.Dir}}' $(KYVERNO_MODULE))/config/install-latest-testing.yaml" "$$tmp/install.yaml"; \
		chmod 755 "$$tmp"; \
		mv "$$tmp" "$(LOCALBIN)/kyverno-$$version"; \
	fi; \
	ln -sfn "kyverno-$$version" "$(LOCALBIN)/kyverno"

# Vale parses source code with tree-sitter, so this build needs a C compiler.
.PHONY: vale
vale: ## Build Vale to bin/, for the language check. Needs a C compiler.
	@CGO_ENABLED=1 $(call build-tool,vale,github.com/vale-cli/vale/v3,cmd/vale)

.PHONY: setup-envtest
setup-envtest: ## Install setup-envtest to bin/.
	@$(call install-tool,setup-envtest,$(SETUP_ENVTEST_MODULE),$(SETUP_ENVTEST_VERSION))

# build-tool(name, module, package in it, build flags): builds a tool that hack/<name>/go.mod
# pins to bin/<name>-<version>, with bin/<name> as a link to it.
define build-tool
version="$$(cd hack/$(1) && go list -m -f '{{.Version}}' $(2))"; \
if [ ! -x "$(LOCALBIN)/$(1)-$$version" ]; then \
	echo "Building $(1) $$version ..." >&2; \
	mkdir -p "$(LOCALBIN)"; \
	tmp="$$(mktemp -d "$(LOCALBIN)/.$(1).XXXXXX")"; trap 'rm -rf "$$tmp"' EXIT; \
	(cd hack/$(1) && go build -trimpath $(4) -o "$$tmp/$(1)" $(2)/$(3)); \
	mv -f "$$tmp/$(1)" "$(LOCALBIN)/$(1)-$$version"; \
fi; \
ln -sfn "$(1)-$$version" "$(LOCALBIN)/$(1)"
endef

# install-tool(name, package, version): bin/<name> is a link to bin/<name>-<version>, so that a new
# version is installed when it is pinned, and an old version is kept. The temporary directory
# prevents the use of an incomplete installation.
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

# The assignment is a separate statement, since the shell ignores its failure otherwise.
define use-control-plane
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh)"; export KUBEBUILDER_ASSETS;
endef

# Includes kube-controller-manager for the tests that require it. These tests are skipped if the
# user's control plane does not include it.
define use-control-plane-and-peer
peer=--with-controller-manager; \
if [ -n "$$KUBEBUILDER_ASSETS" ] && [ ! -x "$$KUBEBUILDER_ASSETS/kube-controller-manager" ]; then \
	echo "There is no kube-controller-manager in KUBEBUILDER_ASSETS, so the tests that require it are skipped." >&2; peer=; \
fi; \
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh $$peer)"; export KUBEBUILDER_ASSETS;
endef

define use-control-plane-with-peer
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh --with-controller-manager)"; export KUBEBUILDER_ASSETS;
endef

# run-suites(arguments): runs all suites in parallel processes, even if one fails.
define run-suites
"$(GINKGO)" --procs=$(PROCS) --keep-going --timeout=60m --poll-progress-after=2m --ldflags='-s -w' $(1)
endef

# run-benchmark(package): builds a program of the module test/benchmark and runs it here, so that
# paths in ARGS are relative to this directory. `go run` would need test/benchmark as its directory.
define run-benchmark
set -x; go build -C test/benchmark -o "$(LOCALBIN)/benchmarks/" $(1); \
"$(LOCALBIN)/benchmarks/$(if $(filter .,$(1)),benchmark,$(notdir $(1)))" $(ARGS)
endef

# The e2e build tag ensures that go test ./... does not require a cluster.
define run-e2e
set -x; IMG="$(IMG)" KUBECTL="$(KUBECTL)" go test -tags=e2e -count=1 ./test/e2e -timeout 60m -v -ginkgo.v $(ARGS)
endef

# The version in the image. git runs only when the image is built.
define image-version
--build-arg=VERSION="$$(git describe --always --dirty)" --build-arg=REVISION="$$(git rev-parse HEAD)"
endef

# With exec, the demo receives Ctrl-C directly.
define start-demo
$(use-control-plane) go build -o "$(LOCALBIN)/demo" ./test/demo; exec "$(LOCALBIN)/demo"
endef

# Renders config/default with the image IMG to $$overlay/install.yaml. The overlay is in bin/, which
# git ignores: a deployment must not change the tree.
define render-install
overlay="$$(mktemp -d "$(LOCALBIN)/.overlay.XXXXXX")"; trap 'rm -rf "$$overlay"' EXIT; \
printf '%s\n' 'resources:' '- ../../config/default' 'sortOptions:' '  order: fifo' >"$$overlay/kustomization.yaml"; \
(cd "$$overlay" && "$(KUSTOMIZE)" edit set image "ghcr.io/nslifecycle/nslifecycle=$(IMG)"); \
"$(KUSTOMIZE)" build "$$overlay" >"$$overlay/install.yaml"; \
grep -qF -- 'image: $(IMG)' "$$overlay/install.yaml" || { echo "The Deployment does not use the image $(IMG)." >&2; exit 1; };
endef

# Deletes what an earlier version or another variant has installed and $$overlay/install.yaml does not contain, since a
# ServiceAccount would keep its permissions. Separately applied objects have other names.
define delete-obsolete
installed="$$($(KUBECTL) get deployments,poddisruptionbudgets,clusterrolebindings,clusterroles,rolebindings,roles,serviceaccounts \
	--namespace=nslifecycle-system --selector=app.kubernetes.io/name=nslifecycle --output=name)"; \
wanted="$$($(KUBECTL) get -f "$$overlay/install.yaml" --output=name)"; \
obsolete="$$(grep '/nslifecycle-' <<<"$$installed" | grep -vxF "$$wanted" || :)"; \
if [ -n "$$obsolete" ]; then $(KUBECTL) delete --namespace=nslifecycle-system $$obsolete; fi
endef

# The manager runs in a separate process group, as in the target run.
define wait-for-system-namespace
wait-for-deletion() { \
	[ -z "$$($(KUBECTL) get namespace nslifecycle-system --ignore-not-found --output=name)" ] || \
		$(KUBECTL) wait --for=delete namespace/nslifecycle-system --timeout="$$1"; \
}; \
if ! wait-for-deletion "$(UNDEPLOY_TIMEOUT)" 2>/dev/null; then \
	echo "Namespace nslifecycle-system was not finalized within $(UNDEPLOY_TIMEOUT). Running a manager locally until it is deleted." >&2; \
	set -m; "$(LOCALBIN)/manager" --controllers=finalization --leader-elect=false --health-probe-bind-address=0 \
		--zap-encoder=console --zap-log-level=error & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :; wait "$$pid" || :' EXIT; \
	wait-for-deletion 5m; \
fi
endef

define delete-templates
if $(KUBECTL) get crd namespacetemplates.nslifecycle.dev >/dev/null 2>&1; then \
	$(KUBECTL) delete namespacetemplates.nslifecycle.dev --all --timeout=$(UNDEPLOY_TIMEOUT); \
fi
endef

# Deletes bindings before policies, and both before all other objects, so that no policy refers to a
# missing object: API servers reload policies once a second. API servers before 1.36 do not serve all
# four kinds. `kubectl api-resources` would fail if the API server of any APIService is unavailable.
define delete-policies
served="$$($(KUBECTL) get --raw /apis/admissionregistration.k8s.io/v1)"; \
for kind in mutatingwebhookconfigurations mutatingadmissionpolicybindings validatingadmissionpolicybindings mutatingadmissionpolicies validatingadmissionpolicies; do \
	if ! grep -q "\"name\": *\"$$kind\"" <<<"$$served"; then continue; fi; \
	$(KUBECTL) delete "$$kind.admissionregistration.k8s.io" -l app.kubernetes.io/name=nslifecycle --ignore-not-found; \
done; \
sleep 2
endef
