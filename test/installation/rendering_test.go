// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/parts"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	managedBy = "app.kubernetes.io/managed-by"
	keep      = "helm.sh/resource-policy"
)

var _ = Describe("The manifest and the chart", func() {
	It("contain the same objects as config/default", func(ctx context.Context) {
		kustomized := byName(kustomize(ctx, filepath.Join(controlplane.Root(), "config", "default")))
		content, err := os.ReadFile(manifest())
		Expect(err).NotTo(HaveOccurred())
		manifested := byName(parse(string(content)))
		removeIgnoredNamespaces(kustomized)
		removeIgnoredNamespaces(manifested)
		expectSame(manifested, kustomized)

		expectChartSame(ctx, kustomized)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("contain the same objects in each variant", func(ctx context.Context, directory string, values ...string) {
		kustomized := byName(kustomize(ctx, framework.Variant(directory)))
		removeIgnoredNamespaces(kustomized)
		expectChartSame(ctx, kustomized, values...)
	},
		Entry("separate finalization", "separate-finalization", "--set=finalization.separate=true", SpecTimeout(5*time.Minute)),
		Entry("no finalization", "without-finalization", "--set=finalization.enabled=false", SpecTimeout(5*time.Minute)),
		Entry("host network", "host-network", "--set=webhooks.hostNetwork=true", SpecTimeout(5*time.Minute)),
	)
})

// expectChartSame renders the chart and expects the same objects as those of kustomize.
func expectChartSame(ctx context.Context, kustomized map[string]*unstructured.Unstructured, values ...string) {
	GinkgoHelper()
	// By default, the chart omits the Namespace, which must exist before `helm install`.
	rendered, err := template(ctx, append([]string{"--set=namespace.create=true"}, values...)...)
	Expect(err).NotTo(HaveOccurred())
	charted := byName(rendered)
	removeIgnoredNamespaces(charted)
	Expect(charted).To(HaveKey("Pod/nslifecycle-check"))
	delete(charted, "Pod/nslifecycle-check")
	for name, object := range charted {
		Expect(kustomized).To(HaveKey(name))
		labels := object.GetLabels()
		if kustomized[name].GetLabels()[managedBy] != "" {
			Expect(labels).To(HaveKeyWithValue(managedBy, "Helm"), name)
			labels[managedBy] = "kustomize"
			object.SetLabels(labels)
		}
		annotations := object.GetAnnotations()
		if object.GetKind() == "CustomResourceDefinition" || object.GetName() == controlplane.SourceNamespace && object.GetKind() == "Namespace" {
			Expect(annotations).To(HaveKeyWithValue(keep, "keep"), name)
		}
		if delete(annotations, keep); len(annotations) == 0 {
			annotations = nil // As in an object that never had annotations.
		}
		object.SetAnnotations(annotations)
	}
	expectSame(charted, kustomized)
}

var _ = Describe("The chart", func() {
	It("installs all namespaced objects in the namespaces of the release and of the sources", func(ctx context.Context) {
		objects, err := template(ctx, "--namespace=elsewhere", "--set=provisioner.enabled=true,sources.namespace=src,sources.create=false")
		Expect(err).NotTo(HaveOccurred())
		Expect(deployment(byName(objects)).Spec.Template.Spec.Containers[0].Args).To(ContainElement("--source-namespace=src"))
		for _, object := range objects {
			Expect(object.GetKind()).NotTo(Equal("Namespace"))
			if object.GetName() == "nslifecycle-sources" {
				Expect(object.GetNamespace()).To(Equal("src"), object.GetKind())
			} else {
				Expect(object.GetNamespace()).To(Or(BeEmpty(), Equal("elsewhere")))
			}
			subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
			Expect(err).NotTo(HaveOccurred())
			for _, subject := range subjects {
				Expect(subject).To(Or(Not(HaveKey("namespace")), HaveKeyWithValue("namespace", "elsewhere")))
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("passes its values to the manager", func(ctx context.Context) {
		objects, err := template(ctx, "--set=image.digest=sha256:"+fmt.Sprintf("%064d", 1),
			"--set=controllers=*\\,-diagnosis", "--set=namespaceFinalizer=example.com/agent",
			"--set=finalizationGracePeriod=7s", "--set=logLevel=debug", "--set=extraArgs={--concurrent-namespace-finalizations=20}",
			"--set=metrics.enabled=false", "--set=priorityClassName=", "--set=podDisruptionBudget.enabled=false")
		Expect(err).NotTo(HaveOccurred())
		named := byName(objects)
		Expect(named).NotTo(HaveKey("Service/nslifecycle-controller-manager-metrics-service"))
		Expect(named).NotTo(HaveKey("ResourceQuota/nslifecycle-critical-pods"))
		Expect(named).NotTo(HaveKey("PodDisruptionBudget/nslifecycle-controller-manager"))
		confine := named["ValidatingAdmissionPolicy/nslifecycle-confine"].Object["spec"]
		Expect(confine).To(HaveKeyWithValue("variables", ContainElement(
			Equal(map[string]any{"name": "namespaceFinalizer", "expression": "'example.com/agent'"}))))
		pod := deployment(named).Spec.Template.Spec
		Expect(pod.PriorityClassName).To(BeEmpty())
		Expect(pod.Containers[0].Image).To(HaveSuffix("nslifecycle@sha256:" + fmt.Sprintf("%064d", 1)))
		Expect(pod.Containers[0].Args).To(Equal([]string{
			"--leader-elect", "--health-probe-bind-address=:8081", "--controllers=*,-diagnosis,-admission",
			"--webhook-bind-address=:9443", "--namespace-finalizer=example.com/agent", "--finalization-grace-period=7s",
			"--log-level=debug", "--concurrent-namespace-finalizations=20",
		}))
	}, SpecTimeout(5*time.Minute))

	It("installs the hold webhooks with settings, with cert-manager, or not at all", func(ctx context.Context) {
		objects, err := template(ctx, "--set=hold.duration=5s", "--set=hold.maxWrites=10")
		Expect(err).NotTo(HaveOccurred())
		Expect(deployment(byName(objects)).Spec.Template.Spec.Containers[0].Args).To(ContainElements(
			"--webhook-bind-address=:9443", "--hold-duration=5s", "--hold-max-writes=10"))

		By("omitting them")
		objects, err = template(ctx, "--set=webhooks.enabled=false")
		Expect(err).NotTo(HaveOccurred())
		named := byName(objects)
		for name := range named {
			Expect(name).NotTo(SatisfyAny(ContainSubstring("hold"), ContainSubstring("WebhookConfiguration")))
		}
		Expect(deployment(named).Spec.Template.Spec.Containers[0].Args).NotTo(ContainElement(ContainSubstring("hold")))

		By("leaving the certificate to cert-manager")
		objects, err = template(ctx, "--set=webhooks.certManager.enabled=true")
		Expect(err).NotTo(HaveOccurred())
		expectCertManager(byName(objects))
		expectCertManager(byName(kustomize(ctx, framework.Variant("webhook-cert-manager"))))
	}, SpecTimeout(5*time.Minute))

	It("installs optional objects if they are enabled", func(ctx context.Context) {
		objects, err := template(ctx, "--set=networkPolicy.enabled=true", "--set=metrics.serviceMonitor.enabled=true",
			"--set=metrics.prometheusRule.enabled=true", "--set=deletionProtection.enabled=true",
			"--set=namespaceOwners.enabled=true", "--set=controllers=initialization\\,finalization")
		Expect(err).NotTo(HaveOccurred())
		named := byName(objects)
		Expect(deployment(named).Spec.Template.Spec.Containers[0].Args).To(
			ContainElement("--controllers=initialization,finalization,-admission"))
		for name, part := range map[string]string{
			"NetworkPolicy/nslifecycle-allow-metrics-traffic":               "network-policy",
			"ServiceMonitor/nslifecycle-controller-manager-metrics-monitor": "prometheus",
			"PrometheusRule/nslifecycle-controller-manager-rules":           "prometheus",
			"ValidatingAdmissionPolicy/nslifecycle-protection":              "protection",
			"ValidatingAdmissionPolicy/nslifecycle-namespace-owners":        "owners",
		} {
			Expect(named).To(HaveKey(name))
			kustomized := byName(kustomize(ctx, filepath.Join(controlplane.Root(), "config", part)))
			// config/default adds the name prefix.
			plain := strings.Replace(name, "/nslifecycle-", "/", 1)
			Expect(kustomized).To(HaveKey(plain))
			Expect(named[name].Object["spec"]).To(Equal(kustomized[plain].Object["spec"]), name)
		}
	}, SpecTimeout(5*time.Minute))

	It("installs the objects of config/provisioner if it is enabled", func(ctx context.Context) {
		objects, err := template(ctx, "--set=provisioner.enabled=true")
		Expect(err).NotTo(HaveOccurred())
		charted := byName(objects)
		objects, err = template(ctx)
		Expect(err).NotTo(HaveOccurred())
		for name := range byName(objects) {
			delete(charted, name)
		}
		for name, object := range charted {
			labels := object.GetLabels()
			Expect(labels).To(HaveKeyWithValue(managedBy, "Helm"), name)
			labels[managedBy] = "kustomize"
			object.SetLabels(labels)
		}
		kustomized := byName(kustomize(ctx, filepath.Join(controlplane.Root(), "config", "provisioner")))
		removeIgnoredNamespaces(kustomized)
		expectSame(charted, kustomized)
	}, SpecTimeout(5*time.Minute))

	It("renders large numbers in a format that the manager parses", func(ctx context.Context) {
		// Numbers in a values file are floats; --set makes them integers.
		objects, err := template(ctx, "--set-json=hold.maxWrites=2000000")
		Expect(err).NotTo(HaveOccurred())
		Expect(deployment(byName(objects)).Spec.Template.Spec.Containers[0].Args).To(
			ContainElement("--hold-max-writes=2000000"))
	}, SpecTimeout(5*time.Minute))

	It("adds the labels in the values to the PrometheusRule", func(ctx context.Context) {
		objects, err := template(ctx, "--set=metrics.prometheusRule.enabled=true", "--set=metrics.prometheusRule.labels.release=mine")
		Expect(err).NotTo(HaveOccurred())
		Expect(byName(objects)["PrometheusRule/nslifecycle-controller-manager-rules"].GetLabels()).To(And(
			HaveKeyWithValue("release", "mine"), HaveKeyWithValue("app.kubernetes.io/name", "nslifecycle")))
	}, SpecTimeout(5*time.Minute))

	DescribeTable("rejects invalid values", func(ctx context.Context, value, field string) {
		_, err := template(ctx, "--set="+value)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
		Entry("an unknown value", "replica=2", "replica"),
		Entry("a negative number of replicas", "replicas=-1", "replicas"),
		Entry("an unknown controller", "controllers=unknown", "controllers"),
		Entry("finalization in a separate Deployment and not at all", "finalization.enabled=false,finalization.separate=true",
			"finalization"),
		Entry("a duration without a unit", "finalizationGracePeriod=5", "finalizationGracePeriod"),
		Entry("an unknown log level", "logLevel=2", "logLevel"),
		Entry("the port of the health probes as the metrics port", "metrics.port=8081", "port"),
		Entry("the port of the hold webhooks as the metrics port", "metrics.port=9443", "port"),
		Entry("no time to hold writes", "hold.duration=0s", "duration"),
		Entry("no time in milliseconds to hold writes", "hold.duration=0ms", "duration"),
		Entry("the timeout of the hold webhooks as the time to hold writes", "hold.duration=15000ms", "duration"),
		Entry("a Pod label that overrides the label for metrics", "podLabels.nslifecycle\\.dev/metrics=other", "podLabels"),
		Entry("a Pod label that overrides the selector label", "podLabels.control-plane=other", "podLabels"),
		Entry("an incomplete digest", "image.digest=sha256:0", "digest"),
		Entry("an argument without dashes", "extraArgs={check}", "extraArgs"),
	)
})

func byName(objects []unstructured.Unstructured) map[string]*unstructured.Unstructured {
	GinkgoHelper()
	named := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		name := object.GetKind() + "/" + object.GetName()
		Expect(named).NotTo(HaveKey(name))
		named[name] = &object
	}
	return named
}

// removeIgnoredNamespaces removes metadata.namespace, which the API server ignores, from
// cluster-scoped objects. kustomize sets the field if it does not know that a kind is
// cluster-scoped: v5.8.1, which kubectl 1.37 uses, sets it on more admission policies than v5.8.2.
func removeIgnoredNamespaces(named map[string]*unstructured.Unstructured) {
	GinkgoHelper()
	for name, object := range named {
		if strings.Contains(name, "AdmissionPolicy") {
			object.SetNamespace("")
		}
	}
}

// expectSame compares the objects one by one, so that a failure shows the object that differs.
func expectSame(got, want map[string]*unstructured.Unstructured) {
	GinkgoHelper()
	Expect(slices.Collect(maps.Keys(got))).To(ConsistOf(slices.Collect(maps.Keys(want))))
	for name, object := range want {
		Expect(got[name].Object).To(Equal(object.Object), name)
	}
}

// deployment returns the main Deployment.
func deployment(named map[string]*unstructured.Unstructured) *appsv1.Deployment {
	GinkgoHelper()
	return deploymentOf(named, controlplane.ServiceAccount)
}

func deploymentOf(named map[string]*unstructured.Unstructured, name string) *appsv1.Deployment {
	GinkgoHelper()
	var typed appsv1.Deployment
	object := named["Deployment/"+name]
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)).To(Succeed())
	return &typed
}

// expectCertManager expects that cert-manager issues the certificate of the webhooks.
func expectCertManager(named map[string]*unstructured.Unstructured) {
	GinkgoHelper()
	Expect(named).NotTo(HaveKey("Secret/nslifecycle-webhook-certificate"))
	Expect(named).To(HaveKey("Certificate/nslifecycle-webhook"))
	for _, name := range []string{
		"MutatingWebhookConfiguration/nslifecycle-hold", "MutatingWebhookConfiguration/nslifecycle-inject",
		"ValidatingWebhookConfiguration/nslifecycle-templates",
	} {
		Expect(named[name].GetAnnotations()).To(And(HaveKeyWithValue("admissions.enforcer/disabled", "true"),
			HaveKeyWithValue("cert-manager.io/inject-ca-from", controlplane.SystemNamespace+"/nslifecycle-webhook")))
	}
	Expect(deploymentOf(named, "nslifecycle-admission").Spec.Template.Spec.Containers[0].Args).To(
		ContainElement("--webhook-certificate-rotation=false"))
}

var _ = Describe("The ServiceAccounts of the Deployments", func() {
	It("are those that policies and code treat as the operator", func(ctx context.Context) {
		accounts := sets.New[string]()
		for _, directory := range []string{
			filepath.Join(controlplane.Root(), "config", "default"), framework.Variant("separate-finalization"),
		} {
			named := byName(kustomize(ctx, directory))
			for key, object := range named {
				if object.GetKind() == "Deployment" {
					accounts.Insert(deploymentOf(named, strings.TrimPrefix(key, "Deployment/")).Spec.Template.Spec.ServiceAccountName)
				}
			}
		}
		Expect(sets.List(accounts)).To(ConsistOf(parts.Accounts()))
	})
})

// optionalVariants matches the variants that config/default contains as comments.
var optionalVariants = regexp.MustCompile(`(?m)^# - \.\./(\S+)$`)

var _ = Describe("The flags of the manager", func() {
	It("are valid in all manifests", func(ctx context.Context) {
		root := filepath.Join(controlplane.Root(), "config")
		directories := []string{}
		Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "kustomization.yaml" {
				directories = append(directories, filepath.Dir(path))
			}
			return err
		})).To(Succeed())
		content, err := os.ReadFile(filepath.Join(root, "default", "kustomization.yaml"))
		Expect(err).NotTo(HaveOccurred())
		for _, found := range optionalVariants.FindAllStringSubmatch(string(content), -1) {
			directories = append(directories, framework.Variant(found[1]))
		}
		var managers []corev1.Container
		for _, directory := range directories {
			managers = append(managers, managersIn(kustomize(ctx, directory))...)
		}
		expectValidFlags(ctx, managers, "--webhook-certificate-rotation=false",
			"--namespace-finalizer=openshift.com/origin", "--controllers=-finalization,-diagnosis")
	}, SpecTimeout(5*time.Minute))

	It("are valid in the chart with any values", func(ctx context.Context) {
		objects, err := template(ctx, "--set=finalization.separate=true",
			"--set=webhooks.certManager.enabled=true", "--set=hold.duration=5s", "--set=hold.maxWrites=10",
			"--set=hold.maxWritesPerUser=3", "--set=namespaceFinalizer=example.com/agent", "--set=finalizationGracePeriod=7s",
			"--set=logLevel=error", "--set=extraArgs={--concurrent-namespace-finalizations=20}")
		Expect(err).NotTo(HaveOccurred())
		expectValidFlags(ctx, managersIn(objects), "--check", "--hold-max-writes-per-user=3", "--log-level=error",
			"--finalization-grace-period=7s", "--webhook-certificate-rotation=false")
	}, SpecTimeout(5*time.Minute))
})

// managersIn returns the containers of Deployments and Pods that run the manager.
func managersIn(objects []unstructured.Unstructured) (managers []corev1.Container) {
	GinkgoHelper()
	for _, object := range objects {
		spec, _, err := unstructured.NestedMap(object.Object, "spec")
		switch object.GetKind() {
		case "Deployment":
			spec, _, err = unstructured.NestedMap(object.Object, "spec", "template", "spec")
		case "Pod":
		default:
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		var pod corev1.PodSpec
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod)).To(Succeed())
		for _, container := range pod.Containers {
			if slices.Equal(container.Command, []string{"/manager"}) {
				managers = append(managers, container)
			}
		}
	}
	return managers
}

// expectValidFlags expects that the manager accepts the flags of each container, and that some of them are in use. With
// the flag --version, the manager only validates all others.
func expectValidFlags(ctx context.Context, managers []corev1.Container, inUse ...any) {
	GinkgoHelper()
	var all []string
	for _, manager := range managers {
		output, err := exec.CommandContext(ctx, binary(), append(manager.Args, "--version")...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%v: %s", manager.Args, output)
		all = append(all, manager.Args...)
	}
	Expect(all).To(ContainElements(inUse...))
}
