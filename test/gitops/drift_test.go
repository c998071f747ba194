// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fluxcd/pkg/ssa"
	ssautils "github.com/fluxcd/pkg/ssa/utils"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// syncInterval is the time between two syncs. Tools use minutes.
const syncInterval = 10 * time.Second

// installer applies the whole installation, as a tool does in each sync.
type installer = func(ctx context.Context) error

// tools returns the installers of a cluster.
var tools = map[string]func(ctx context.Context, target *framework.Cluster) installer{
	"kubectl": func(_ context.Context, target *framework.Cluster) installer {
		return func(ctx context.Context) error {
			_, err := target.Kubectl(ctx, target.Admin.Config, "apply", "-k", filepath.Join(controlplane.Root(), "config", "default"))
			return err
		}
	},
	"Helm": func(_ context.Context, target *framework.Cluster) installer {
		return func(ctx context.Context) error {
			_, err := target.RunAs(ctx, target.Admin, "", framework.HelmPath(), "upgrade", "--install", "nslifecycle",
				filepath.Join(controlplane.Root(), "dist", "chart"), "--namespace="+controlplane.SystemNamespace, "--create-namespace")
			return err
		}
	},
	"Flux": func(_ context.Context, target *framework.Cluster) installer {
		flux, err := newFluxAs(target.Admin.Config, nil)
		Expect(err).NotTo(HaveOccurred())
		return func(ctx context.Context) error {
			_, err := flux.ApplyAllStaged(ctx, manifest(ctx, target), ssa.DefaultApplyOptions())
			return err
		}
	},
	"Argo CD":                       argoCD(),
	"Argo CD and server-side apply": argoCD("--server-side-apply"),
	"Argo CD and server-side diff":  argoCD("--server-side-apply", "--server-side-diff"),
}

var _ = Describe("A sync of the installation changes nothing, and weakens nothing,", func() {
	for name, tool := range tools {
		var labels Labels
		if strings.HasPrefix(name, "Argo CD") {
			labels = Label("long") // The build of the engine takes minutes.
		}
		It("with "+name, labels, func(ctx context.Context) {
			target, sync := installWith(ctx, tool, func(options *manager.Options) {
				options.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour)) // Skips the first minute.
			})
			expectNoWrites(ctx, target, sync, 6*syncInterval)
		}, SpecTimeout(10*time.Minute))

		It("with "+name+", for an hour", Label("long"), func(ctx context.Context) {
			target, sync := installWith(ctx, tool)
			expectNoWrites(ctx, target, sync, time.Hour)
		}, SpecTimeout(90*time.Minute))
	}
})

// argoCD returns an installer that runs the program in argocd. It fails if an object is OutOfSync after the first sync.
func argoCD(flags ...string) func(ctx context.Context, target *framework.Cluster) installer {
	return func(ctx context.Context, target *framework.Cluster) installer {
		GinkgoHelper()
		program, file := filepath.Join(target.Dir, "argocd"), filepath.Join(target.Dir, "manifest.yaml")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
		build.Dir = filepath.Join(controlplane.Root(), "test", "gitops", "argocd")
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		Expect(os.WriteFile(file, []byte(render(ctx, target)), 0o600)).To(Succeed())
		command := exec.Command(program, append(flags, "--manifest="+file,
			"--kubeconfig="+framework.KubeconfigFile(target.Admin.Config))...)
		command.Stderr = GinkgoWriter
		requests, err := command.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		responses, err := command.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Start()).To(Succeed())
		DeferCleanup(func() error {
			return errors.Join(requests.Close(), command.Wait())
		})
		decoder, first := json.NewDecoder(responses), true
		return func(context.Context) error {
			if _, err := fmt.Fprintln(requests); err != nil {
				return err
			}
			var outOfSync []string
			if err := decoder.Decode(&outOfSync); err != nil {
				return fmt.Errorf("failed to read the result of a sync: %w", err)
			}
			if first != (len(outOfSync) > 0) {
				return fmt.Errorf("first sync: %t, OutOfSync: %s", first, strings.Join(outOfSync, "\n"))
			}
			first = false
			return nil
		}
	}
}

// render returns config/default.
func render(ctx context.Context, target *framework.Cluster) string {
	GinkgoHelper()
	manifest, err := target.Kubectl(ctx, target.Admin.Config, "kustomize", filepath.Join(controlplane.Root(), "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	return manifest
}

// manifest returns the objects in config/default.
func manifest(ctx context.Context, target *framework.Cluster) []*unstructured.Unstructured {
	GinkgoHelper()
	objects, err := ssautils.ReadObjects(strings.NewReader(render(ctx, target)))
	Expect(err).NotTo(HaveOccurred())
	return objects
}

// initializing is a namespace that remains Initializing.
const initializing = "initializing"

// installWith starts a control plane, and a manager with configurations that need all policies. It returns when all of
// them reject requests that they cannot evaluate.
func installWith(
	ctx context.Context, tool func(context.Context, *framework.Cluster) installer, changes ...func(*manager.Options),
) (*framework.Cluster, installer) {
	GinkgoHelper()
	target := framework.Start(ctx)
	framework.SkipWithoutPolicies(ctx, target.Admin.Config, "the API server cannot reach the Service of the webhooks")
	install := tool(ctx, target)
	Expect(install(ctx)).To(Succeed())
	Expect(target.AggregateClusterRoles(ctx)).To(Succeed())
	target.AddTemplateAccount(ctx, account)
	// The webhooks keep their Service: they would be rejected with a URL in addition.
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	webhooks.URL = ""
	target.StartManager(ctx, append(changes, func(options *manager.Options) { options.Hold = webhooks })...)
	configuration := wrappers.MakeConfiguration("all").Initializers(absent)
	configuration.WaitingSubjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "waiting@corp.example.com"}}
	target.RegisterConfiguration(ctx, configuration)
	template := newTemplate("all")
	Eventually(func() error { return target.Admin.Create(ctx, template) }).WithContext(ctx).Should(Succeed())
	framework.CreateNamespace(ctx, target.Ordinary, initializing)
	Eventually(findWeak).WithContext(ctx).WithArguments(ctx, target).WithTimeout(3 * time.Minute).Should(BeEmpty())
	return target, install
}

// policyLists returns empty lists of all types of policies and bindings.
func policyLists() []client.ObjectList {
	return []client.ObjectList{
		&admissionv1.MutatingAdmissionPolicyList{}, &admissionv1.MutatingAdmissionPolicyBindingList{},
		&admissionv1.ValidatingAdmissionPolicyList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{},
	}
}

// policyNames are the policies that read the effective set and deny requests.
var policyNames = []string{
	"nslifecycle-initializer-subjects", "nslifecycle-inject", "nslifecycle-templates", "nslifecycle-waiting-subjects",
	"nslifecycle-waiting-subjects-resources-named-namespaces",
}

// findWeak returns the policies that are missing or admit requests that they cannot evaluate.
func findWeak(g Gomega, ctx context.Context, target *framework.Cluster) []string {
	var mutating admissionv1.MutatingAdmissionPolicyList
	var validating admissionv1.ValidatingAdmissionPolicyList
	g.Expect(target.Admin.List(ctx, &mutating)).To(Succeed())
	g.Expect(target.Admin.List(ctx, &validating)).To(Succeed())
	strict := map[string]bool{}
	for _, policy := range mutating.Items {
		strict[policy.Name] = *policy.Spec.FailurePolicy == admissionv1.Fail
	}
	for _, policy := range validating.Items {
		strict[policy.Name] = *policy.Spec.FailurePolicy == admissionv1.Fail
	}
	return slices.DeleteFunc(slices.Clone(policyNames), func(name string) bool { return strict[name] })
}

// resourceVersions returns those of the objects in config/default, and of all policies and bindings.
func resourceVersions(ctx context.Context, target *framework.Cluster) map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	objects := manifest(ctx, target)
	for _, list := range policyLists() {
		Expect(target.Admin.List(ctx, list, client.HasLabels{v1alpha1.Prefix + "policy"})).To(Succeed())
		Expect(meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, toUnstructured(Default, item.(client.Object)))
			return nil
		})).To(Succeed())
	}
	for _, object := range objects {
		target.Admin.Reads(ctx, object)
		versions[object.GetKind()+"/"+object.GetName()] = object.GetResourceVersion()
	}
	return versions
}

// expectNoWrites syncs repeatedly, and expects that no client writes an object of the installation, and that the API
// server injects and gates without interruption.
func expectNoWrites(ctx context.Context, target *framework.Cluster, install installer, duration time.Duration) {
	GinkgoHelper()
	Expect(install(ctx)).To(Succeed())
	before := resourceVersions(ctx, target)
	probing, stop := context.WithCancel(ctx)
	var probes sync.WaitGroup
	requests, failures := 0, []string(nil)
	probes.Go(func() {
		defer GinkgoRecover()
		for probing.Err() == nil {
			if err := probe(ctx, target); err != nil {
				failures = append(failures, err.Error())
			}
			requests++
			time.Sleep(200 * time.Millisecond)
		}
	})
	syncs := 0
	for end := time.Now().Add(duration); time.Now().Before(end); syncs++ {
		Expect(install(ctx)).To(Succeed())
		Expect(resourceVersions(ctx, target)).To(Equal(before), "after %d syncs", syncs+1)
		time.Sleep(syncInterval)
	}
	stop()
	probes.Wait()
	Expect(failures).To(BeEmpty())
	AddReportEntry("sync", fmt.Sprintf("%d syncs, %d objects, no write; %d probes", syncs, len(before), requests),
		ReportEntryVisibilityAlways)
}

// probe returns an error if an ordinary user can create a namespace without a pending list, or write to an initializing
// one, or if a policy would admit a request that it cannot evaluate. It sends only dry runs.
func probe(ctx context.Context, target *framework.Cluster) error {
	namespace := wrappers.MakeNamespace("probe").Obj()
	if err := target.Ordinary.Create(ctx, namespace, client.DryRunAll); err != nil {
		return fmt.Errorf("the creation of a namespace is blocked: %w", err)
	}
	if framework.PendingOf(namespace) != absent {
		return fmt.Errorf("a new namespace has the pending list %q", framework.PendingOf(namespace))
	}
	err := target.Ordinary.Create(ctx, wrappers.MakeConfigMap(initializing, "early"), client.DryRunAll)
	if isDenied, _ := matchers.BeDeniedBy("gate", "is being initialized").Match(err); !isDenied {
		return fmt.Errorf("a write to an initializing namespace is not gated: %w", err)
	}
	if weak := findWeak(Default, ctx, target); len(weak) > 0 {
		return fmt.Errorf("policies %v are weak", weak)
	}
	return nil
}
