# The image that image-archive builds and deploy installs.
IMG ?= ghcr.io/nslifecycle/nslifecycle:latest
# Additional arguments for run, demo, the benchmarks and test, for example `make demo ARGS=--once`.
ARGS ?=
# The platforms for which image-archive builds images.
PLATFORMS ?= linux/amd64,linux/arm64
# The command that loads the image in $$IMAGE_ARCHIVE into the cluster in KUBECONFIG as $$IMG, for
# test-e2e. Without it, test-e2e creates a Kind cluster.
LOAD_IMAGE ?=
# The name, the node image and the configuration of the Kind cluster. If they are empty, Kind uses its defaults.
KIND_CLUSTER ?= nslifecycle-test-e2e
KIND_NODE_IMAGE ?=
KIND_CONFIG ?=
# The archive that image-push pushes.
ARCHIVE ?= dist/image.tar
# The image name in release-artifacts, and the platforms of the released programs.
RELEASE_IMAGE ?= ghcr.io/nslifecycle/nslifecycle
RELEASE_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# How long undeploy waits for the deletion of the templates, and how long for the deletion of the system
# namespace before it runs a manager to finalize the namespace.
UNDEPLOY_TIMEOUT ?= 60s
KUBECTL ?= kubectl

# hack/control-plane.sh and the overlay of deploy depend on this path.
LOCALBIN := $(CURDIR)/bin
# The modules with Go code. The others, in hack, only pin the version of a program.
MODULES := . hack/docs hack/image test/benchmark test/gitops test/gitops/argocd

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
	@set -m; "$(LOCALBIN)/manager" --leader-elect=false --log-format=text $(ARGS) & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :' INT TERM HUP; \
	while rc=0; wait "$$pid" || rc=$$?; kill -0 "$$pid" 2>/dev/null; do :; done; \
	trap - INT TERM HUP; \
	if [ "$$rc" -ne 3 ]; then exit "$$rc"; fi; \
	echo "No cluster is configured, so an embedded control plane is started, with the manager and two initializers." >&2; \
	$(start-demo) --no-tour

##@ Development

.PHONY: manifests
manifests: controller-gen policies ## Generate the CRDs, the policies, and one ClusterRole for each part of the operator.
	"$(LOCALBIN)/controller-gen" crd paths=./api/... paths=./internal/api/... output:crd:artifacts:config=config/crd/bases
	"$(LOCALBIN)/controller-gen" rbac:roleName=manager-role paths=./internal/controller/... paths=./internal/manager/... \
		paths=./internal/template/... paths=./internal/installcheck/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=health-role,fileName=health_role.yaml paths=./internal/initializerhealth/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=finalization-role,fileName=finalization_role.yaml paths=./internal/finalization/... \
		paths=./internal/graceperiod/...
	"$(LOCALBIN)/controller-gen" rbac:roleName=admission-role,fileName=admission_role.yaml paths=./internal/policyverifier/... \
		paths=./internal/mutation/...

.PHONY: policies
policies: ## Render the admission policies from their templates.
	go run ./hack/policies .

.PHONY: generate
generate: controller-gen ## Generate deep copies.
	"$(LOCALBIN)/controller-gen" object:headerFile=hack/boilerplate.go.txt paths=./api/... paths=./internal/api/...

.PHONY: api-reference
api-reference: crd-ref-docs ## Generate docs/api-reference.md from the types.
	"$(LOCALBIN)/crd-ref-docs" --log-level=ERROR --source-path=api/v1alpha1 --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --output-path=docs/api-reference.md

.PHONY: docs-reference
docs-reference: ## Generate docs/reference from the plugin, the manager's flags and metrics, and the API.
	cd hack/docs && go run . --root="$(CURDIR)"

.PHONY: fmt
fmt: ## Run gofmt.
	gofmt -l -w .

.PHONY: vet
vet: ## Run go vet.
	@$(call in-modules,$(MODULES),go vet -tags=e2e ./...)

.PHONY: lint
lint: golangci-lint ## Run golangci-lint.
	@$(call in-modules,$(MODULES),"$(LOCALBIN)/golangci-lint" run --build-tags=e2e $(ARGS))

.PHONY: lint-fix
lint-fix: ## Run golangci-lint and apply its fixes.
	@$(MAKE) --no-print-directory lint ARGS=--fix

.PHONY: lint-config
lint-config: golangci-lint ## Check the configuration of golangci-lint.
	"$(LOCALBIN)/golangci-lint" config verify

##@ Test

# The suites that ginkgo runs in PROCS processes each, the longest first. Every process has its own control plane, so specs
# do not interfere. go test runs all other packages, PACKAGES of them concurrently.
PARALLEL_SUITES := security templates installation servers webhooks diagnosis finalization libraries initialization admission
PROCS ?= 2
PACKAGES ?= 2
# The number of suites that run at the same time: while the specs of one suite wait, another one computes. A control plane
# costs 5 s of processor time, so more lanes with fewer processes take less time than fewer lanes with more processes.
LANES ?= 4
# The suites that only test-long runs, in addition to the specs of PARALLEL_SUITES with the label "long".
LONG_SUITES := chaos

# No test target generates or formats files, since this would hide errors in the
# tree. `make verify` checks the tree.

# Without this check, ginkgo would ignore a name that has changed.
.PHONY: check-suites
check-suites:
	@for suite in $(PARALLEL_SUITES) $(LONG_SUITES) $(VERSION_SUITES); do \
		[ -f "test/$$suite/suite_test.go" ] || { echo "There is no suite test/$$suite." >&2; exit 1; }; \
	done

.PHONY: test
test: check-suites helm kustomize promtool ginkgo ## Run all tests except test-long and test-versions.
	@echo "Skipping $(LONG_SUITES:%=test/%) and specs with the label \"long\": run make test-long." >&2
	@echo "Skipping other Kubernetes versions: run make test-versions." >&2
	@$(use-control-plane-and-peer) $(save-cpu) $(MAKE) --no-print-directory -j$(LANES) --output-sync=target --keep-going \
		test-packages test-suites test-gitops test-modules

.PHONY: test-packages
test-packages:
	@packages="$$(go list ./... | grep -vE "/test/($(subst $(space),|,$(PARALLEL_SUITES) $(LONG_SUITES)))$$")"; \
	set -x; go test -p $(PACKAGES) -timeout 30m $(ARGS) $$packages

.PHONY: test-modules
test-modules:
	@$(call in-modules,$(filter-out . test/gitops test/gitops/argocd,$(MODULES)),go test ./...)

.PHONY: test-suites $(PARALLEL_SUITES:%=test-suite-%)
test-suites: $(PARALLEL_SUITES:%=test-suite-%)
$(PARALLEL_SUITES:%=test-suite-%): test-suite-%:
	$(call run-suites,./test/$*)

# A module of its own, because of its dependencies. The long specs (GITOPS_SPECS=long GITOPS_TIMEOUT=8h ARGS=-v) print the
# measured times; a sync for an hour is one of them for each tool.
GITOPS_SPECS ?= !long
GITOPS_TIMEOUT ?= 30m

.PHONY: test-gitops
test-gitops: helm ## Test what kstatus, kubectl, Helm and Flux read, and the syncs of GitOps tools.
	@$(use-control-plane) set -x; cd test/gitops && go test -timeout $(GITOPS_TIMEOUT) -ginkgo.timeout $(GITOPS_TIMEOUT) \
		-ginkgo.label-filter='$(GITOPS_SPECS)' $(ARGS)

.PHONY: test-long
test-long: check-suites helm ginkgo ## Run the long tests, which repeatedly kill managers and API servers.
	@$(use-control-plane-and-peer) set -x; failed=; \
	$(call run-suites,--label-filter=long $(PARALLEL_SUITES:%=./test/%) ./test/authorization ./test/policywebhooks) || failed=1; \
	for members in 1 3; do \
		NSLIFECYCLE_TEST_API_SERVERS=3 NSLIFECYCLE_TEST_ETCD_MEMBERS=$$members go test -count=1 -timeout 30m ./test/servers \
			|| failed=1; \
	done; \
	go test -timeout 60m $(ARGS) $(LONG_SUITES:%=./test/%) || failed=1; \
	$(MAKE) --no-print-directory test-gitops GITOPS_SPECS=long GITOPS_TIMEOUT=8h || failed=1; \
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
	@$(use-control-plane) NSLIFECYCLE_TEST_WRITE_TABLE=true go test ./test/security -count=1 -timeout 30m -ginkgo.focus="token of a ServiceAccount" $(ARGS)

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
VERSION_SUITES ?= authorization admission finalization webhooks policywebhooks libraries installation initialization security guardrails templates

.PHONY: test-versions
test-versions: check-suites helm kustomize ginkgo ## Run VERSION_SUITES on the API servers of VERSIONS. Building them takes an hour.
	@failed=; for version in $(VERSIONS); do \
		if ! assets="$$(hack/control-plane.sh --version="$$version" --with-controller-manager)" || \
			! KUBEBUILDER_ASSETS="$$assets" $(MAKE) --no-print-directory --keep-going test-version-suites test-version-packages \
				test-gitops; then \
			failed="$$failed $$version"; \
		fi; \
	done; \
	if [ -n "$$failed" ]; then echo "Suites failed with Kubernetes$$failed." >&2; exit 1; fi

.PHONY: test-version-suites
test-version-suites:
	$(call run-suites,$(ARGS) $(addprefix ./test/,$(filter $(PARALLEL_SUITES),$(VERSION_SUITES))))

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
.PHONY: test-chaos test-security test-servers
test-chaos test-security test-servers:
	@$(use-control-plane-and-peer) set -x; go test ./test/$(@:test-%=%) -count=1 -v -timeout 2h $(ARGS)

# The suites that test-integration runs: those with a control plane of their own.
SUITES ?= $(filter-out $(addprefix ./test/,benchmark chaos docs e2e framework gitops),$(patsubst %/,%,$(wildcard ./test/*/)))

.PHONY: test-integration
test-integration: promtool ginkgo ## Run SUITES verbosely. ARGS=--focus=TEXT selects specs.
	@$(use-control-plane-and-peer) $(call run-suites,-v $(ARGS) $(SUITES))

# The Kind cluster is deleted after the tests, even if they fail.
.PHONY: test-e2e
test-e2e: kustomize build-plugin image-archive $(if $(LOAD_IMAGE),,kind) ## Run the end-to-end tests on a Kind cluster, or with LOAD_IMAGE on the cluster of KUBECONFIG.
	@$(call on-cluster,$(run-e2e))

# The states of the cluster in which the conformance specs are run. The version of Kubernetes is pinned in
# test/conformance/upstream, and must be that of the cluster.
STATES ?= without user admin

.PHONY: test-conformance
test-conformance: kustomize image-archive $(if $(LOAD_IMAGE),,kind) ## Run the conformance specs of Kubernetes without and with nslifecycle, in a cluster like that of test-e2e.
	go build -C test/conformance/upstream -o "$(LOCALBIN)/conformance/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
	version="$$(go list -C test/conformance/upstream -m -f '{{.Version}}' k8s.io/kubernetes)"; \
	go test -C test/conformance/upstream -c -o "$(LOCALBIN)/conformance/e2e.test" \
		-ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$$version" k8s.io/kubernetes/test/e2e
	@$(call on-cluster,$(run-conformance))

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

.PHONY: bench-policies
bench-policies: ## Measure how long API servers evaluate each policy. ARGS=-benchtime=5s for more samples.
	go test -C test/benchmark -run='^$$' -bench=. -benchmem ./policies $(ARGS)

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
	@$(call in-modules,$(patsubst %/,%,$(dir $(shell git ls-files go.mod '*/go.mod'))),go mod tidy -diff)
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
		"$(LOCALBIN)/kustomize" build "$${file%/*}" >/dev/null; \
	done

.PHONY: verify-chart
verify-chart: helm
	"$(LOCALBIN)/helm" lint --strict --kube-version=1.33 dist/chart

.PHONY: verify-workflows
verify-workflows: actionlint
	"$(LOCALBIN)/actionlint"

# The comments in templates of manifests and Go files are checked in the rendered files.
.PHONY: language
language: vale ## Check docs, comments, strings and names against the terms in hack/vale.
	"$(LOCALBIN)/vale" --config=hack/vale/vale.ini --output=line $$(git ls-files \
		'*.md' '*.go' '*.yaml' '*.yml' '*.sh' '*.tpl' Makefile ':!*.yaml.tpl' ':!*.go.tpl' ':!hack/vale' ':!dist' ':!**/zz_generated.*')

# Not part of verify: the vulnerability database changes independently of the tree.
.PHONY: vulncheck
vulncheck: govulncheck ## Check for known vulnerabilities in called code.
	@$(call in-modules,$(MODULES),"$(LOCALBIN)/govulncheck" ./...)

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

# Both outputs are committed, so that users can download them from a tag.
.PHONY: build-installer
build-installer: kustomize policies ## Write dist/install.yaml and the generated parts of dist/chart.
	@$(render-install) mv "$$overlay/install.yaml" dist/install.yaml; echo "Wrote dist/install.yaml."; \
	printf '%s\n' 'namespace: nslifecycle-system' 'namePrefix: nslifecycle-' 'sortOptions:' '  order: fifo' \
		'resources:' '- ../../config/protection' '- ../../config/owners' '- ../../config/prometheus' '- ../../config/manager/finalization' \
		>"$$overlay/kustomization.yaml"; \
	"$(LOCALBIN)/kustomize" build "$$overlay" >"$$overlay/optional.yaml"; \
	(echo ---; "$(LOCALBIN)/kustomize" build config/provisioner) >>"$$overlay/optional.yaml"; \
	for file in config/mutating/*.yaml; do echo ---; cat "$$file"; done >>"$$overlay/optional.yaml"; \
	go run ./hack/chart dist/install.yaml "$$overlay/optional.yaml" dist/chart/files

# A separate module, so that the manager does not depend on the image builder.
.PHONY: image-archive
image-archive: ## Write dist/image.tar, an OCI archive for all PLATFORMS, without a container engine.
	cd hack/image && go run . --root="$(CURDIR)" --name="$(IMG)" --output="$(CURDIR)/dist/image.tar" \
		--platforms="$(PLATFORMS)"

.PHONY: kind-load
kind-load: PLATFORMS = linux/$(shell go env GOARCH)
kind-load: kind image-archive ## Build the image and load it on the nodes of the Kind cluster KIND_CLUSTER_NAME, by default kind.
	"$(LOCALBIN)/kind" load image-archive dist/image.tar

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
		--revision="$$revision" --created="$$created" --platforms="$(PLATFORMS)" \
		--output="$(CURDIR)/dist/release/nslifecycle-image_$(VERSION).tar"; \
	go run ./release --root="$(CURDIR)" --image="$(RELEASE_IMAGE)" --version="$(VERSION)" \
		--revision="$$revision" --created="$$created" --platforms="$(RELEASE_PLATFORMS)" \
		--output="$(CURDIR)/dist/release"

##@ Deployment

ignore-not-found ?= true

.PHONY: install
install: kustomize ## Install the CRDs.
	"$(LOCALBIN)/kustomize" build config/crd | $(KUBECTL) apply -f -

# An API server that starts while the CRD of a policy's parameters is missing rejects every request
# that the policy matches: all new namespaces. Therefore the policies are deleted first.
.PHONY: uninstall
uninstall: kustomize ## Remove the CRDs, the policies that read them, and all configurations.
	@$(delete-templates)
	@$(delete-policies)
	"$(LOCALBIN)/kustomize" build config/crd | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

.PHONY: deploy
deploy: kustomize ## Install everything, with the manager's image from IMG.
	@$(render-install) $(KUBECTL) apply -f "$$overlay/install.yaml"; $(delete-obsolete)

# The namespace of the sources of copies, which contains Secrets of users, remains.
# The manager loses its permissions, and never deletes the content of its own namespace. If the
# built-in namespace controller is off, a local manager finalizes the namespace. At this point, all policies are
# already deleted.
.PHONY: undeploy
undeploy: kustomize build ## Remove everything, in an order that never blocks namespaces.
	@$(delete-templates)
	@$(delete-policies)
	"$(LOCALBIN)/kustomize" build config/default | $(KUBECTL) delete --wait=false --ignore-not-found=$(ignore-not-found) \
		--selector='app.kubernetes.io/component!=sources' -f -
	$(delete-permissions)
	@$(wait-for-system-namespace)

##@ Tools

# Programs that `go install` builds: each is a target. All versions are pinned here. cosign signs releases.
actionlint := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
controller-gen := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
cosign := github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
crd-ref-docs := github.com/elastic/crd-ref-docs@v0.3.0
golangci-lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
govulncheck := golang.org/x/vuln/cmd/govulncheck@v1.8.0
helm := helm.sh/helm/v4/cmd/helm@v4.3.1
kind := sigs.k8s.io/kind@v0.33.0
# v5.8.3 requires Go 1.27, but this project builds with 1.26.
kustomize := sigs.k8s.io/kustomize/kustomize/v5@v5.8.2
setup-envtest := sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1

TOOLS := actionlint controller-gen cosign crd-ref-docs golangci-lint govulncheck helm kind kustomize setup-envtest

.PHONY: tools $(TOOLS)
tools: $(TOOLS) ginkgo promtool ## Install the programs for development to bin/. Each is a target, too.
$(TOOLS):
	@$(call add-tool,$@,$(lastword $(subst @, ,$($@))),GOBIN="$$tmp" GOOS= GOARCH= GOFLAGS= go install "$($@)")

# The command must have the version of the library in go.mod.
.PHONY: ginkgo
ginkgo: ## Build ginkgo to bin/.
	@go build -o "$(LOCALBIN)/ginkgo" github.com/onsi/ginkgo/v2/ginkgo

# Built from a separate module, since `go install` rejects modules with a replace directive. The
# build tag excludes service discovery for cloud providers. The binary is cached by version, since
# the build takes minutes.
.PHONY: promtool
promtool: ## Build promtool to bin/, for the tests of the alerts and the dashboard.
	@$(call build-tool,promtool,github.com/prometheus/prometheus,cmd/promtool,-tags=remove_all_sd)

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

# build-tool(name, module, package in it, build flags): adds a program of a module that hack/<name>/go.mod pins.
define build-tool
version="$$(cd hack/$(1) && go list -m -f '{{.Version}}' $(2))"; \
$(call add-tool,$(1),$$version,go build -C hack/$(1) -trimpath $(4) -o "$$tmp/$(1)" $(2)/$(3))
endef

# add-tool(name, version, command): bin/<name> is a link to bin/<name>-<version>, so that a new version is installed when
# it is pinned, and an old version is kept. The command writes the program to $$tmp: this temporary directory prevents the
# use of an incomplete installation.
define add-tool
if [ ! -x "$(LOCALBIN)/$(1)-$(2)" ]; then \
	echo "Installing $(1) $(2) ..." >&2; \
	mkdir -p "$(LOCALBIN)"; \
	tmp="$$(mktemp -d "$(LOCALBIN)/.$(1).XXXXXX")"; trap 'rm -rf "$$tmp"' EXIT; \
	$(3); \
	mv -f "$$tmp/$(1)" "$(LOCALBIN)/$(1)-$(2)"; \
fi; \
ln -sfn "$(1)-$(2)" "$(LOCALBIN)/$(1)"
endef

# in-modules(directories, command): runs a command in each directory, up to the first failure.
define in-modules
set -x; for module in $(1); do (cd "$$module"; $(2)); done
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

# Garbage collection takes a seventh of the processor time of an API server whose heap is small. All processes inherit the
# variables, except managers whose memory is measured.
save-cpu := GOGC=400 GOMEMLIMIT=700MiB

# run-suites(arguments): runs all suites in parallel processes, even if one fails.
define run-suites
"$(LOCALBIN)/ginkgo" --procs=$(PROCS) --keep-going --timeout=60m --poll-progress-after=2m --ldflags='-s -w' $(1)
endef

# run-benchmark(package): builds a program of the module test/benchmark and runs it here, so that
# paths in ARGS are relative to this directory. `go run` would need test/benchmark as its directory.
define run-benchmark
set -x; go build -C test/benchmark -o "$(LOCALBIN)/benchmarks/" $(1); \
"$(LOCALBIN)/benchmarks/$(if $(filter .,$(1)),benchmark,$(notdir $(1)))" $(ARGS)
endef

# Loads the image into the cluster of KUBECONFIG, or into a new Kind cluster, and runs a command.
define on-cluster
export IMG="$(IMG)" IMAGE_ARCHIVE="$(CURDIR)/dist/image.tar"; \
$(if $(LOAD_IMAGE),$(LOAD_IMAGE),$(create-kind-cluster)); \
$(1)
endef

define create-kind-cluster
kubeconfig="$$(mktemp)"; trap '"$(LOCALBIN)/kind" delete cluster --name="$(KIND_CLUSTER)"; rm -f "$$kubeconfig"' EXIT; \
export KUBECONFIG="$$kubeconfig"; \
"$(LOCALBIN)/kind" create cluster --name="$(KIND_CLUSTER)" --wait=3m \
	$(if $(KIND_NODE_IMAGE),--image="$(KIND_NODE_IMAGE)") $(if $(KIND_CONFIG),--config="$(KIND_CONFIG)"); \
"$(LOCALBIN)/kind" load image-archive dist/image.tar --name="$(KIND_CLUSTER)"
endef

# In the state without, nslifecycle is not installed yet.
define run-conformance
for state in $(STATES); do \
	[ "$$state" = without ] || $(MAKE) --no-print-directory deploy; \
	go run ./test/conformance --state="$$state" $(ARGS); \
done; \
go run ./test/conformance --compare
endef

# The e2e build tag ensures that go test ./... does not require a cluster.
define run-e2e
set -x; IMG="$(IMG)" KUBECTL="$(KUBECTL)" go test -tags=e2e -count=1 ./test/e2e -timeout 60m -v -ginkgo.v $(ARGS)
endef

# With exec, the demo receives Ctrl-C directly.
define start-demo
$(use-control-plane) go build -o "$(LOCALBIN)/demo" ./hack/demo; exec "$(LOCALBIN)/demo"
endef

# Renders config/default with the image IMG to $$overlay/install.yaml. The overlay is in bin/, which
# git ignores: a deployment must not change the tree.
define render-install
overlay="$$(mktemp -d "$(LOCALBIN)/.overlay.XXXXXX")"; trap 'rm -rf "$$overlay"' EXIT; \
printf '%s\n' 'resources:' '- ../../config/default' 'sortOptions:' '  order: fifo' >"$$overlay/kustomization.yaml"; \
(cd "$$overlay" && "$(LOCALBIN)/kustomize" edit set image "ghcr.io/nslifecycle/nslifecycle=$(IMG)"); \
"$(LOCALBIN)/kustomize" build "$$overlay" >"$$overlay/install.yaml"; \
grep -qF -- 'image: $(IMG)' "$$overlay/install.yaml" || { echo "The Deployment does not use the image $(IMG)." >&2; exit 1; };
endef

# Deletes what an earlier version or another variant has installed and $$overlay/install.yaml does not contain, since a
# ServiceAccount would keep its permissions. Separately applied objects have other names or the label component, and
# objects that commands print have no label managed-by.
define delete-obsolete
installed="$$($(KUBECTL) get deployments,poddisruptionbudgets,clusterrolebindings,clusterroles,rolebindings,roles,serviceaccounts \
	--namespace=nslifecycle-system --output=name \
	--selector='app.kubernetes.io/name=nslifecycle,app.kubernetes.io/managed-by=kustomize,!app.kubernetes.io/component')"; \
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
		--log-format=text --log-level=error & pid=$$!; set +m; \
	trap 'kill "$$pid" 2>/dev/null || :; wait "$$pid" || :' EXIT; \
	wait-for-deletion 5m; \
fi
endef

define delete-templates
if $(KUBECTL) get crd namespacetemplates.nslifecycle.dev >/dev/null 2>&1; then \
	$(KUBECTL) delete namespacetemplates.nslifecycle.dev --all --timeout=$(UNDEPLOY_TIMEOUT); \
fi
endef

# Deletes what commands and messages of nslifecycle have printed, such as permissions for templates, and what has been
# applied separately. Otherwise, users who may create namespaces could create the subjects of the bindings again.
define delete-permissions
$(KUBECTL) delete clusterrolebindings,clusterroles,rolebindings,roles --all-namespaces \
	--selector=app.kubernetes.io/name=nslifecycle --ignore-not-found
endef

# Deletes bindings before policies, and both before all other objects, so that no policy refers to a
# missing object: API servers reload policies once a second. The operator does not apply its policies again without the
# bindings of the gate. API servers before 1.36 do not serve all four kinds. `kubectl api-resources` would fail if the API server of any APIService is unavailable.
define delete-policies
served="$$($(KUBECTL) get --raw /apis/admissionregistration.k8s.io/v1)"; \
for kind in mutatingwebhookconfigurations validatingadmissionpolicybindings mutatingadmissionpolicybindings mutatingadmissionpolicies validatingadmissionpolicies; do \
	if ! grep -q "\"name\": *\"$$kind\"" <<<"$$served"; then continue; fi; \
	$(KUBECTL) delete "$$kind.admissionregistration.k8s.io" -l app.kubernetes.io/name=nslifecycle --ignore-not-found; \
done; \
sleep 2
endef
