# The image that image-archive builds and deploy installs.
export IMG ?= ghcr.io/nslifecycle/nslifecycle:latest
# Additional arguments for run, demo, lint, the benchmarks and the tests, for example `make demo ARGS=--once`.
ARGS ?=
# The platforms for which image-archive builds images.
PLATFORMS ?= linux/amd64,linux/arm64
# The archive that image-push pushes.
ARCHIVE ?= dist/image.tar
# The image name in release-artifacts, and the platforms of the released programs.
RELEASE_IMAGE := ghcr.io/nslifecycle/nslifecycle
RELEASE_PLATFORMS := linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# hack/install.sh and hack/test-cluster.sh describe their variables: KUBECTL, UNDEPLOY_TIMEOUT, LOAD_IMAGE,
# KIND_NODE_IMAGE, KIND_CONFIG and STATES. In LOAD_IMAGE, $$IMAGE_ARCHIVE is a variable of the shell.
export LOAD_IMAGE := $(LOAD_IMAGE)

# The scripts in hack depend on this path.
LOCALBIN := $(CURDIR)/bin
# The modules with Go code. The others, in hack, only pin the version of a program.
MODULES := . hack/docs hack/image test/benchmark test/gitops test/gitops/argocd
# Programs for development, each a target.
TOOLS := $(shell awk '/^[a-z]/ { print $$1 }' hack/tools.txt)

# suites(word): the suites with this word in test/suites.txt.
suites = $(shell awk '/^[a-z].* $(1)( |$$)/ { print $$1 }' test/suites.txt)
PARALLEL_SUITES := $(call suites,parallel)
SEPARATE_SUITES := $(call suites,separate)

# The image is also built without cgo. With cgo, kustomize, which is linked into the kubectl plugin, uses Go's package
# plugin, and linking takes minutes.
export CGO_ENABLED ?= 0

# Stop at the first error, even in a pipeline.
SHELL = /usr/bin/env bash -o pipefail
.SHELLFLAGS = -ec

.DEFAULT_GOAL := help

space := $() $()

.PHONY: help demo run generate api-reference docs-reference build-installer test-unit test test-packages test-modules \
	test-gitops test-long test-race test-versions test-version test-upgrade test-e2e test-conformance bench \
	bench-finalization bench-initializer bench-plugin bench-scale bench-templates bench-policies kyverno control-plane \
	fmt lint language verify vulncheck build build-plugin image-archive image-push kind-load release-artifacts install \
	uninstall deploy undeploy

help:
	@awk 'BEGIN { FS = ":.*## "; printf "Usage: make \033[36m<target>\033[0m\n" } \
		/^(# )?[a-z][a-zA-Z0-9 -]*:.*## / { sub(/^# /, ""); split($$1, names, " "); \
			printf "  \033[36m%-16s\033[0m %s\n", names[1], $$2 }' $(MAKEFILE_LIST)

# The recipes run hack/control-plane.sh instead of depending on a target, since only the script knows the path of the
# binaries.
demo: ## Run a real API server and two initializers, and show a tour. ONCE=1 exits after the tour.
	@$(start-demo) $(if $(filter-out 0 false,$(ONCE)),--once) $(ARGS)

# Exit status 3 of the manager means that no cluster is configured. Any other status is returned to
# the caller. The shell must outlive the manager to read the status, so it forwards signals. In a
# separate process group (set -m), the manager receives each signal only once: a second signal would
# terminate it immediately.
run: build ## Run the manager against the current kubeconfig context, or an embedded control plane if there is none.
	@set -m; "$(LOCALBIN)/manager" --leader-elect=false --log-format=text $(ARGS) & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :' INT TERM HUP; \
	while rc=0; wait "$$pid" || rc=$$?; kill -0 "$$pid" 2>/dev/null; do :; done; \
	trap - INT TERM HUP; \
	if [ "$$rc" -ne 3 ]; then exit "$$rc"; fi; \
	echo "No cluster is configured, so an embedded control plane is started, with the manager and two initializers." >&2; \
	$(start-demo) --no-tour

.PHONY: manifests
manifests: controller-gen policies ## Generate the CRDs, the policies, and one ClusterRole for each part of the operator.
	"$(LOCALBIN)/controller-gen" crd paths=./api/... paths=./internal/api/... output:crd:artifacts:config=config/crd/bases
	"$(LOCALBIN)/controller-gen" rbac:roleName=manager-role paths=./internal/controller/... paths=./internal/manager/... \
		paths=./internal/template/... paths=./internal/installcheck/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=health-role,fileName=health_role.yaml paths=./internal/initializerhealth/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=finalization-role,fileName=finalization_role.yaml paths=./internal/finalization/... \
		paths=./internal/graceperiod/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=admission-role,fileName=admission_role.yaml paths=./internal/admission/verify/... \
		paths=./internal/admission/install/...

.PHONY: policies
policies:
	go run ./hack/policies .

generate: controller-gen ## Generate deep copies.
	"$(LOCALBIN)/controller-gen" object:headerFile=hack/boilerplate.go.txt paths=./api/... paths=./internal/api/...

# docs/api-reference.md from the types.
api-reference: crd-ref-docs
	"$(LOCALBIN)/crd-ref-docs" --log-level=ERROR --source-path=api/v1alpha1 --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --output-path=docs/api-reference.md

# docs/reference from the plugin, the manager's flags and metrics, and the API.
docs-reference: api-reference ## Generate docs/api-reference.md and docs/reference.
	cd hack/docs && go run . --root="$(CURDIR)"

build-installer: kustomize policies ## Write dist/install.yaml and the generated parts of dist/chart.
	@hack/install.sh manifests

# No test target generates or formats files, since this would hide errors in the tree. `make verify` checks the tree.

# The number of processes of a suite in PARALLEL_SUITES. Each has its own control plane, so specs do not interfere.
PROCS ?= 2
# The number of other packages that go test runs concurrently.
PACKAGES ?= 2
# The number of suites that run at the same time: while the specs of one suite wait, another one computes. A control plane
# costs 5 s of processor time, so more lanes with fewer processes take less time than fewer lanes with more processes.
LANES ?= 4
# The API servers of test-versions, each pinned in hack/controlplane. Building them takes an hour.
VERSIONS ?= 1.33 1.34 1.35 1.36 1.37
# The version from which test-upgrade upgrades: the latest tag before this commit.
FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)

test-unit: ## Run the unit tests, which need no API server.
	go test ./api/... ./cmd/... ./internal/... ./pkg/... ./hack/chart ./hack/policies $(ARGS)

# Garbage collection takes a seventh of the processor time of an API server whose heap is small. All processes inherit
# the variables GOGC and GOMEMLIMIT, except managers whose memory is measured.
test: helm kustomize promtool ginkgo ## Run all tests except test-long and test-versions.
	@echo "Skipping test/chaos and specs with the label \"long\": run make test-long." >&2
	@echo "Skipping other Kubernetes versions: run make test-versions." >&2
	@$(use-control-plane-and-peer) GOGC=400 GOMEMLIMIT=700MiB $(MAKE) --no-print-directory -j$(LANES) \
		--output-sync=target --keep-going test-packages test-gitops $(PARALLEL_SUITES:%=test-suite-%) test-modules

test-packages:
	@packages="$$(go list ./... | grep -vE "/test/($(subst $(space),|,$(PARALLEL_SUITES) $(SEPARATE_SUITES)))$$")"; \
	set -x; go test -p $(PACKAGES) -timeout 30m $(ARGS) $$packages

test-modules:
	@$(call in-modules,$(filter-out . test/gitops test/gitops/argocd,$(MODULES)),go test ./...)

.PHONY: $(PARALLEL_SUITES:%=test-suite-%)
$(PARALLEL_SUITES:%=test-suite-%): test-suite-%:
	$(run-suites) ./test/$*

# The output contains the seed and the report entries of the specs. ARGS contains flags of go test.
# test-NAME: ## Run the suite test/NAME verbosely. ARGS=-ginkgo.focus=TEXT selects specs.
SUITE_TARGETS := $(patsubst %,test-%,$(PARALLEL_SUITES) $(call suites,serial) chaos)
.PHONY: $(SUITE_TARGETS)
$(SUITE_TARGETS): test-%:
	@$(use-control-plane-and-peer) set -x; go test ./test/$* -count=1 -v -timeout 2h $(ARGS)
test-observability: promtool

# A module of its own, because of its dependencies. The long specs (ARGS='-v -ginkgo.label-filter=long -timeout=8h
# -ginkgo.timeout=8h') print the measured times; a sync for an hour is one of them for each tool.
test-gitops: helm
	@$(use-control-plane) set -x; cd test/gitops && go test -timeout 30m -ginkgo.timeout 30m $(ARGS)

test-long: helm ginkgo ## Run the long tests, which repeatedly kill managers and API servers.
	@$(use-control-plane-and-peer) set -x; failed=; \
	$(run-suites) --label-filter=long $(patsubst %,./test/%,$(call suites,long)) || failed=1; \
	for members in 1 3; do \
		NSLIFECYCLE_TEST_API_SERVERS=3 NSLIFECYCLE_TEST_ETCD_MEMBERS=$$members go test -count=1 -timeout 30m ./test/servers \
			|| failed=1; \
	done; \
	go test -timeout 60m $(ARGS) ./test/chaos || failed=1; \
	(cd test/gitops && go test -timeout 8h -ginkgo.timeout 8h -ginkgo.label-filter=long $(ARGS)) || failed=1; \
	[ -z "$$failed" ]

# The managers that the tests build and run as processes have the race detector, too. All processes write reports to
# files, since the output of killed and of parallel processes can be lost. TestManyBombs limits time and memory, which
# the race detector multiplies.
test-race: helm kustomize promtool ginkgo ## Run the tests of make test with the race detector. Needs a C compiler.
	@reports="$$(mktemp -d)"; trap 'rm -rf "$$reports"' EXIT; failed=; $(use-control-plane-and-peer) \
	CGO_ENABLED=1 GOFLAGS=-race GORACE="log_path=$$reports/race" $(MAKE) --no-print-directory --keep-going \
		test-packages $(PARALLEL_SUITES:%=test-suite-%) ARGS=-skip=TestManyBombs || failed=1; \
	for report in "$$reports"/*; do if [ -f "$$report" ]; then cat "$$report"; failed=1; fi; done; \
	[ -z "$$failed" ]

test-versions: helm kustomize ginkgo
	@failed=; for version in $(VERSIONS); do \
		if ! assets="$$(hack/control-plane.sh --version="$$version" --with-controller-manager)" || \
			! KUBEBUILDER_ASSETS="$$assets" $(MAKE) --no-print-directory --keep-going test-version test-gitops; then \
			failed="$$failed $$version"; \
		fi; \
	done; \
	if [ -n "$$failed" ]; then echo "Suites failed with Kubernetes$$failed." >&2; exit 1; fi

test-version:
	$(run-suites) --timeout=2h $(ARGS) $(patsubst %,./test/%,$(call suites,versions))

test-upgrade:
	@[ -n "$(FROM)" ] || { echo "There is no tag to upgrade from. Set FROM to a tag or commit." >&2; exit 1; }
	@$(use-control-plane) set -x; UPGRADE_FROM="$(FROM)" go test ./test/chaos -count=1 -timeout 30m -v -ginkgo.v \
		-ginkgo.focus="An upgrade" $(ARGS)

test-e2e: build-plugin
test-e2e test-conformance: test-%: kustomize image-archive $(if $(LOAD_IMAGE),,kind)
	hack/test-cluster.sh $* $(ARGS)

# docs/benchmarks.md describes the benchmarks and their arguments. The programs run here, so that paths in ARGS are
# relative to this directory. `go run` would need test/benchmark as its directory.
bench bench-finalization bench-initializer bench-plugin bench-scale bench-templates: ## Run the benchmarks and print their ratios.
	@$(call use-control-plane,$(if $(filter %-finalization %-templates,$@),--with-controller-manager)) set -x; \
	go build -C test/benchmark -o "$(LOCALBIN)/benchmarks/$(@:bench-%=%)" ./$(filter-out bench,$(@:bench-%=%)); \
	"$(LOCALBIN)/benchmarks/$(@:bench-%=%)" $(ARGS)

bench-policies:
	go test -C test/benchmark -run='^$$' -bench=. -benchmem ./policies $(ARGS)

# The controllers that a GeneratingPolicy needs, and the manifest of the installation. The first build takes ten minutes
# and 3 GB in Go's build cache.
bench-templates: kyverno
kyverno:
	@cd hack/kyverno; mkdir -p "$(LOCALBIN)/kyverno"; \
	go build -trimpath -ldflags='-s -w' -o "$(LOCALBIN)/kyverno/" tool; \
	install -m 644 "$$(go list -m -f '{{.Dir}}' github.com/kyverno/kyverno)/config/install-latest-testing.yaml" \
		"$(LOCALBIN)/kyverno/install.yaml"

control-plane:
	@hack/control-plane.sh

fmt:
	gofmt -l -w .

lint: golangci-lint ## Run golangci-lint. ARGS=--fix applies its fixes.
	@$(call in-modules,$(MODULES),"$(LOCALBIN)/golangci-lint" run --build-tags=e2e $(ARGS))

# The comments in templates of manifests and Go files are checked in the rendered files.
language: vale
	"$(LOCALBIN)/vale" --config=hack/vale/vale.ini --output=line $$(git ls-files \
		'*.md' '*.go' '*.yaml' '*.yml' '*.sh' '*.tpl' Makefile ':!*.yaml.tpl' ':!*.go.tpl' ':!hack/vale' ':!dist' ':!**/zz_generated.*')

# Builds every kustomization, including those that no other kustomization includes.
verify: kustomize helm actionlint golangci-lint ## Check that the tree is tidy, generated, formatted, linted and committed.
	@$(call in-modules,$(patsubst %/,%,$(dir $(shell git ls-files go.mod '*/go.mod'))),go mod tidy -diff)
	@$(MAKE) --no-print-directory manifests generate docs-reference build-installer IMG=ghcr.io/nslifecycle/nslifecycle:latest
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then \
		echo "Not formatted, run \`make fmt\`:" >&2; echo "$$unformatted" >&2; exit 1; \
	fi
	@$(call in-modules,$(MODULES),go vet -tags=e2e ./...)
	@find config -name kustomization.yaml -print | LC_ALL=C sort | while read -r file; do \
		echo "kustomize build $${file%/*}"; \
		"$(LOCALBIN)/kustomize" build "$${file%/*}" >/dev/null; \
	done
	"$(LOCALBIN)/helm" lint --strict --kube-version=1.33 dist/chart
	"$(LOCALBIN)/actionlint"
	"$(LOCALBIN)/golangci-lint" config verify
	@$(MAKE) --no-print-directory language lint
	@$(call expect-clean,Commit these files or revert them if they are not generated:)

# Not part of verify: the vulnerability database changes independently of the tree.
vulncheck: govulncheck
	@$(call in-modules,$(MODULES),"$(LOCALBIN)/govulncheck" ./...)

# Generated files are committed and checked by `make verify`, so that a build requires only Go.
build: ## Build the manager.
	go build -trimpath -o "$(LOCALBIN)/manager" ./cmd

# kubectl finds both programs in PATH; the second one provides the shell completion of the first.
build-plugin: ## Build the kubectl plugin.
	go build -trimpath -o "$(LOCALBIN)/kubectl-nslifecycle" ./cmd/kubectl-nslifecycle
	ln -sfn kubectl-nslifecycle "$(LOCALBIN)/kubectl_complete-nslifecycle"

# An OCI archive for all PLATFORMS, without a container engine. The builder is a separate module, so that the manager
# does not depend on it.
image-archive:
	cd hack/image && go run . --root="$(CURDIR)" --name="$(IMG)" --output="$(CURDIR)/dist/image.tar" \
		--platforms="$(PLATFORMS)"

image-push:
	cd hack/image && go run . push "$(abspath $(ARCHIVE))" "$(IMG)"

kind-load: PLATFORMS = linux/$(shell go env GOARCH)
kind-load: kind image-archive ## Build the image and load it on the nodes of the Kind cluster KIND_CLUSTER_NAME, by default kind.
	"$(LOCALBIN)/kind" load image-archive dist/image.tar

# Requires a clean tree, since the programs contain the revision. All timestamps are that of the
# commit, so that the files are reproducible. The release workflow runs only this target.
release-artifacts:
	@[ -n "$(VERSION)" ] || { echo "Set VERSION, for example: make release-artifacts VERSION=v0.1.0" >&2; exit 1; }
	@$(call expect-clean,A release is built from a commit. Commit or stash these changes first:)
	rm -rf dist/release
	@set -x; revision="$$(git rev-parse HEAD)"; created="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"; \
	cd hack/image; \
	go run . --root="$(CURDIR)" --name="$(RELEASE_IMAGE):$(VERSION)" --version="$(VERSION)" \
		--revision="$$revision" --created="$$created" --platforms="$(PLATFORMS)" \
		--output="$(CURDIR)/dist/release/nslifecycle-image_$(VERSION).tar"; \
	go run ./release --root="$(CURDIR)" --image="$(RELEASE_IMAGE)" --version="$(VERSION)" \
		--revision="$$revision" --created="$$created" --platforms="$(RELEASE_PLATFORMS)" \
		--output="$(CURDIR)/dist/release"

deploy: ## Install everything, with the manager's image from IMG.
undeploy: build ## Remove everything, in an order that never blocks namespaces.
install uninstall deploy undeploy: kustomize
	@hack/install.sh $@

.PHONY: $(TOOLS)
$(TOOLS):
	@hack/tool.sh $@

# in-modules(directories, command): runs a command in each directory, up to the first failure.
define in-modules
set -x; for module in $(1); do (cd "$$module"; $(2)); done
endef

# expect-clean(message): fails if there are changes.
define expect-clean
changed="$$(git status --porcelain)"; \
if [ -n "$$changed" ]; then echo "The tree is not clean. $(1)" >&2; echo "$$changed" >&2; exit 1; fi
endef

# use-control-plane(flags): the assignment is a separate statement, since the shell ignores its failure otherwise.
define use-control-plane
KUBEBUILDER_ASSETS="$$(hack/control-plane.sh $(1))"; export KUBEBUILDER_ASSETS;
endef

# Includes kube-controller-manager for the tests that require it. These tests are skipped if the
# user's control plane does not include it.
define use-control-plane-and-peer
peer=--with-controller-manager; \
if [ -n "$$KUBEBUILDER_ASSETS" ] && [ ! -x "$$KUBEBUILDER_ASSETS/kube-controller-manager" ]; then \
	echo "There is no kube-controller-manager in KUBEBUILDER_ASSETS, so the tests that require it are skipped." >&2; peer=; \
fi; \
$(call use-control-plane,$$peer)
endef

# Runs all suites in parallel processes, even if one fails.
run-suites := "$(LOCALBIN)/ginkgo" --procs=$(PROCS) --keep-going --timeout=60m --poll-progress-after=2m --ldflags='-s -w'

# With exec, the demo receives Ctrl-C directly.
define start-demo
$(use-control-plane) go build -o "$(LOCALBIN)/demo" ./hack/demo; exec "$(LOCALBIN)/demo"
endef
