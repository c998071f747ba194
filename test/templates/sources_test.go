// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// copying makes a template contain only a copy of a source.
func copying(source *corev1.ConfigMap) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.Objects = []v1alpha1.TemplateObject{{Name: "copy", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "ConfigMap", Namespace: source.Namespace, Name: source.Name}}}
	}
}

// newSource returns a ConfigMap with one key.
func newSource(namespace, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: framework.Unique("source")},
		Data:       map[string]string{"key": value},
	}
}

var _ = Describe("The source of a copy", func() {
	AfterEach(restoreManager)

	It("causes no writes if only its metadata changes, also while the operator is stopped", func(ctx context.Context) {
		intercepted := restartManager(ctx, nil)
		source := newSource("default", "a")
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		template := createTemplate(ctx, "touched", copying(source))
		var namespaces []*corev1.Namespace
		for range 3 {
			namespace := createInitialized(ctx, selectedBy(template.Name))
			namespaces = append(namespaces, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
		versions := func() []string {
			var versions []string
			for _, namespace := range namespaces {
				current := cluster.GetNamespace(Default, ctx, namespace.Name)
				versions = append(versions, current.ResourceVersion,
					getConfig(ctx, namespace, source.Name).ResourceVersion)
			}
			return versions
		}
		touch := func(value int) {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"refreshed":"%d"},"labels":{"refreshed":"%d"}}}`, value, value)
			Expect(cluster.Admin.Patch(ctx, source.DeepCopy(), framework.MergePatch(patch))).To(Succeed())
		}
		reads := func() int { return countContaining(intercepted.sent(), "/configmaps/"+source.Name) }
		before := versions()
		for i := range 3 {
			reads()
			touch(i)
			Eventually(reads).WithContext(ctx).Should(BeNumerically(">", 0), "the operator recognizes the change")
		}
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a restart")
		cluster.StopManager()
		touch(4)
		intercepted = restartManager(ctx, nil)
		Eventually(reads).WithContext(ctx).Should(BeNumerically(">", 0), "the operator compares the content")
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a change of the content")
		source.Data["key"] = "b"
		source.ResourceVersion = ""
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		for _, namespace := range namespaces {
			expectValue(ctx, namespace, source.Name, "b")
		}
	})

	It("is not copied from a namespace that was deleted and created again, until the spec accepts it", func(ctx context.Context) {
		origin := wrappers.MakeNamespace(framework.Unique("origin")).Obj()
		source := newSource(origin.Name, "a")
		template := createTemplate(ctx, "replaced", copying(source))
		By("a namespace that is created after the template")
		namespace := createAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, namespace, "SourceNotFound")
		Expect(cluster.Admin.Create(ctx, origin)).To(Succeed())
		Expect(cluster.Admin.Create(ctx, source.DeepCopy())).To(Succeed())
		expectInitialized(ctx, namespace)
		expectValue(ctx, namespace, source.Name, "a")
		By("its replacement by another user")
		replace := func(value string) {
			GinkgoHelper()
			Expect(cluster.Admin.Delete(ctx, origin.DeepCopy())).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, origin.DeepCopy())
			Expect(cluster.Admin.Create(ctx, wrappers.MakeNamespace(origin.Name).Obj())).To(Succeed())
			other := source.DeepCopy()
			other.Data["key"] = value
			Expect(cluster.Admin.Create(ctx, other)).To(Succeed())
		}
		replace("theirs")
		failures := func() []v1alpha1.TemplateFailure {
			current := getTemplate(Default, ctx, template.Name)
			return current.Status.Failures
		}
		isReplaced := ContainElement(And(HaveField("Namespace", namespace.Name), HaveField("Reason", "SourceNamespaceReplaced")))
		Eventually(failures).WithContext(ctx).Should(isReplaced)
		later := createAs(ctx, creator, selectedBy(template.Name))
		expectWaiting(ctx, later, "SourceNamespaceReplaced")
		By("a restart, and another change of the template")
		restartManager(ctx, nil)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "x")))
		})
		expectValue(ctx, namespace, "config", "x")
		Eventually(failures).WithContext(ctx).Should(isReplaced)
		Consistently(valueIn).WithContext(ctx).WithArguments(namespace, source.Name).Should(Equal("a"))
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: later.Name, Name: source.Name}, &corev1.ConfigMap{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(err).To(HaveOccurred())
		By("accepting the new namespace with the command in the message")
		accept := func() {
			GinkgoHelper()
			command := regexp.MustCompile(`kubectl patch nstemplate (\S+) --type=json --patch='(.*)'$`)
			message := ""
			Eventually(failures).WithContext(ctx).Should(isReplaced)
			for _, failure := range failures() {
				message = failure.Message
			}
			match := command.FindStringSubmatch(message)
			Expect(match).To(HaveLen(3), message)
			Expect(match[1]).To(Equal(template.Name))
			Expect(cluster.Admin.Patch(ctx, template.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(match[2])))).To(Succeed())
		}
		accept()
		expectInitialized(ctx, later)
		for _, copied := range []*corev1.Namespace{namespace, later} {
			expectValue(ctx, copied, source.Name, "theirs")
		}
		expectReached(ctx, template.Name)
		By("another replacement: the spec accepts only the namespace before, also if the status is lost")
		replace("third")
		Expect(cluster.Admin.Status().Patch(ctx, template.DeepCopy(), framework.MergePatch(
			`{"status":{"observedGeneration":null,"sourceNamespaces":null}}`))).To(Succeed())
		restartManager(ctx, nil)
		Eventually(failures).WithContext(ctx).Should(isReplaced)
		expectValue(ctx, later, source.Name, "theirs")
		accept()
		for _, copied := range []*corev1.Namespace{namespace, later} {
			expectValue(ctx, copied, source.Name, "third")
		}
	})

	It("is not deleted in its own namespace if the template contained it before", func(ctx context.Context) {
		template := createTemplate(ctx, "src", only("config", configMap("config", "a")))
		src, other := selectedBy(template.Name), selectedBy(template.Name)
		createInitialized(ctx, src)
		createInitialized(ctx, other)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "config", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "ConfigMap", Namespace: src.Name, Name: "config"}}, objectNamed("more", configMap("more", "a"))}
		})
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: src.Name, Name: "more"}, &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Succeed())
		Consistently(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: src.Name, Name: "config"}, &corev1.ConfigMap{})
		}).WithContext(ctx).WithTimeout(initialization.DeregistrationDelay + 2*time.Second).Should(Succeed())
	})
})

// What the users of one namespace can do is reported, and stops neither other objects nor other namespaces.
var _ = Describe("A user of a namespace", func() {
	var (
		template         *v1alpha1.NamespaceTemplate
		hostile, another *corev1.Namespace
	)
	three := func(value string) func(*v1alpha1.NamespaceTemplateSpec) {
		return func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", value))(spec)
			spec.Objects = append(spec.Objects, objectNamed("other", configMap("other", value)))
			if value == "a" {
				spec.Objects = append(spec.Objects, objectNamed("revoked", configMap("revoked", value)))
			}
		}
	}
	start := func(ctx context.Context) {
		GinkgoHelper()
		template = newTemplate(framework.Unique("obstacle"), three("a"))
		create(ctx, template)
		hostile, another = selectedBy(template.Name), selectedBy(template.Name)
		for _, namespace := range []*corev1.Namespace{hostile, another} {
			createInitialized(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 2")
	}
	patch := func(ctx context.Context, name, patch string) {
		GinkgoHelper()
		config := getConfig(ctx, hostile, name)
		Expect(cluster.Admin.Patch(ctx, config, framework.MergePatch(patch))).To(Succeed())
	}
	// expectReachedOthers waits until all other namespaces, also new ones, have the latest revision.
	expectReachedOthers := func(ctx context.Context) {
		GinkgoHelper()
		expectValue(ctx, another, "config", "b")
		expectReached(ctx, template.Name)
		added := createInitialized(ctx, selectedBy(template.Name))
		expectValue(ctx, added, "config", "b")
	}
	expectFailure := func(ctx context.Context, reason string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			current := getTemplate(g, ctx, template.Name)
			g.Expect(current.Status.Failures).To(ContainElement(And(
				HaveField("Namespace", hostile.Name), HaveField("Reason", reason))))
			g.Expect(current.Status.Namespaces.Failed).To(BeEquivalentTo(1))
		}).WithContext(ctx).Should(Succeed())
	}

	It("cannot hide that the namespace lacks space for the record", func(ctx context.Context) {
		start(ctx)
		current := cluster.GetNamespace(Default, ctx, hostile.Name)
		size := 0
		for key, value := range current.Annotations {
			size += len(key) + len(value)
		}
		space := 256<<10 - size - len("fill")
		patchNamespace(ctx, hostile, fmt.Sprintf(`{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", space)))
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			three("b")(spec)
			spec.Objects = append(spec.Objects, objectNamed("more", configMap("more", "b")), objectNamed("most", configMap("most", "b")))
		})
		expectFailure(ctx, "NotRecorded")
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "1 of 2")
		expectEvents(ctx, hostile, "TemplateNotRecorded")
		expectReachedOthers(ctx)
		By("space for the record")
		patchNamespace(ctx, hostile, `{"metadata":{"annotations":{"fill":null}}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
	})

	It("cannot keep an object by a finalizer, or change it while it is terminating", func(ctx context.Context) {
		start(ctx)
		for _, name := range []string{"config", "revoked"} {
			patch(ctx, name, `{"metadata":{"finalizers":["test.example.com/keep"]}}`)
		}
		terminating := getConfig(ctx, hostile, "config")
		Expect(cluster.Admin.Delete(ctx, terminating)).To(Succeed())
		expectFailure(ctx, "ObjectTerminating")
		patch(ctx, "config", `{"data":{"key":"theirs"}}`)
		expectValue(ctx, hostile, "config", "a")
		change(ctx, template.Name, three("b"))
		expectReachedOthers(ctx)
		expectValue(ctx, hostile, "config", "b")
		expectValue(ctx, hostile, "other", "b")
		expectDeleted(ctx, another, "revoked")
		By("the object that the template no longer contains, which remains reported until it does not exist")
		Eventually(func(g Gomega) {
			g.Expect(getConfig(ctx, hostile, "revoked").DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(recordOf(Default, ctx, hostile, template.Name).Objects).To(ContainElement(HaveField("Name", "revoked")))
		for _, name := range []string{"config", "revoked"} {
			patch(ctx, name, `{"metadata":{"finalizers":null}}`)
		}
		expectDeleted(ctx, hostile, "revoked")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
		expectValue(ctx, hostile, "config", "b")
	})

	It("cannot keep an object by changing another one again and again", func(ctx context.Context) {
		start(ctx)
		for range 3 {
			patch(ctx, "other", `{"data":{"key":"theirs"}}`)
			expectValue(ctx, hostile, "other", "a")
		}
		patch(ctx, "other", `{"data":{"key":"theirs"}}`)
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionTrue)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			three("a")(spec)
			spec.Objects = spec.Objects[:2]
		})
		expectDeleted(ctx, hostile, "revoked")
		expectDeleted(ctx, another, "revoked")
	})

	for _, number := range []int{300, 1000} {
		It(fmt.Sprintf("cannot prevent the restoration of an object by %d labels", number), func(ctx context.Context) {
			start(ctx)
			labels := make([]string, number)
			for i := range labels {
				labels[i] = fmt.Sprintf(`"%s/label-%d":%q`, strings.Repeat("x", 250), i, strings.Repeat("x", 63))
			}
			patch(ctx, "config", `{"metadata":{"labels":{`+strings.Join(labels, ",")+`}}}`)
			patch(ctx, "config", `{"data":{"key":"theirs"}}`)
			expectValue(ctx, hostile, "config", "a")
			change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
				three("b")(spec)
				spec.Objects[0].Lock = v1alpha1.LockAll
			})
			expectReachedOthers(ctx)
			expectValue(ctx, hostile, "config", "b")
			expectDeleted(ctx, hostile, "revoked")
		})
	}

	It("cannot prevent the restoration of an object that has no space for annotations", func(ctx context.Context) {
		start(ctx)
		patch(ctx, "config", `{"metadata":{"annotations":{"`+v1alpha1.AnnotationNamespaceUID+`":null,"fill":"`+
			strings.Repeat("x", 256<<10-4)+`"}},"data":{"key":"theirs"}}`)
		expectValue(ctx, hostile, "config", "a")
		change(ctx, template.Name, three("b"))
		expectReachedOthers(ctx)
		expectValue(ctx, hostile, "config", "b")
	})
})
