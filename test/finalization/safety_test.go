// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// storeNamespace writes a namespace directly to etcd, which bypasses the API server's validation.
func storeNamespace(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	stored := namespace.DeepCopy()
	stored.APIVersion, stored.Kind, stored.ResourceVersion = "v1", "Namespace", ""
	value, err := json.Marshal(stored)
	Expect(err).NotTo(HaveOccurred())
	encode := base64.StdEncoding.EncodeToString
	body, err := json.Marshal(map[string]string{
		"key": encode([]byte("/registry/namespaces/" + namespace.Name)), "value": encode(value),
	})
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, plane.EtcdURL()+"/v3/kv/put", bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
}

// patchPhase patches the phase of a namespace through the API server.
func patchPhase(ctx context.Context, name string, phase corev1.NamespacePhase) error {
	namespace := wrappers.MakeNamespace(name).Obj()
	return admin.Status().Patch(ctx, namespace,
		client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"`+string(phase)+`"}}`)))
}

var _ = Describe("A namespace without a deletionTimestamp", func() {
	It("is not changed, regardless of its phase", func(ctx context.Context) {
		stopManager()
		active := createNamespace(ctx, "active")
		phaseOnly := createNamespace(ctx, "phase-terminating")
		bare := createNamespace(ctx, "bare")
		finalize(ctx, bare.Name)
		kept := []client.Object{active, phaseOnly, bare}
		for _, namespace := range []*corev1.Namespace{active, phaseOnly, bare} {
			objects := makeConfigMaps(namespace.Name, "a", "b")
			create(ctx, objects...)
			kept = append(kept, objects...)
		}

		By("setting the phase to Terminating in etcd, because the API server rejects it")
		Expect(patchPhase(ctx, phaseOnly.Name, corev1.NamespaceTerminating)).To(Satisfy(apierrors.IsInvalid))
		changed := get(Default, ctx, phaseOnly.Name)
		changed.Status.Phase = corev1.NamespaceTerminating
		storeNamespace(ctx, changed)
		Expect(get(Default, ctx, phaseOnly.Name).Status.Phase).To(Equal(corev1.NamespaceTerminating))

		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)), withGracePeriod(0))
		control := createNamespace(ctx, "control")
		deleteObject(ctx, control)
		expectDeleted(ctx, control)

		states := map[string]*corev1.Namespace{}
		for _, name := range []string{active.Name, phaseOnly.Name, bare.Name} {
			states[name] = get(Default, ctx, name)
		}
		expectKept(ctx, kept...)
		for name, state := range states {
			Expect(get(Default, ctx, name)).To(Equal(state))
			Expect(requests.matching("/namespaces/" + name)).To(BeEmpty())
		}
		Expect(get(Default, ctx, active.Name)).To(And(BeActive(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveNoFinalizationConditions()))

		By("deleting the namespaces")
		deleteObject(ctx, phaseOnly)
		deleteObject(ctx, active)
		expectDeleted(ctx, phaseOnly)
		expectDeleted(ctx, active)
		removeAll(ctx, configMaps, bare.Name)
		deleteObject(ctx, bare)
		expectDeleted(ctx, bare)
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A namespace that is deleted in an unusual state", func() {
	It("changes to phase Terminating if it has another phase", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "phase")
		held := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace)
		Expect(patchPhase(ctx, namespace.Name, corev1.NamespaceActive)).To(Satisfy(apierrors.IsInvalid))
		changed := get(Default, ctx, namespace.Name)
		changed.Status.Phase = corev1.NamespaceActive
		storeNamespace(ctx, changed)
		Expect(get(Default, ctx, namespace.Name).Status.Phase).To(Equal(corev1.NamespaceActive))

		startManager(ctx, managerConfig(ctx))
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveRemaining())

		By("changing the phase again")
		changed = get(Default, ctx, namespace.Name)
		changed.Status.Phase = ""
		storeNamespace(ctx, changed)
		eventuallyNamespace(ctx, namespace.Name, BeTerminating())
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("is deleted if it has no namespace finalizers when the manager starts", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "no-namespace-finalizers")
		finalize(ctx, namespace.Name)
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers())

		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)))
		expectDeleted(ctx, namespace)
		Expect(requests.matching(namespace.Name)).To(ConsistOf("PUT /api/v1/namespaces/" + namespace.Name + "/finalize (2)"))
	}, SpecTimeout(5*time.Minute))

	It("is kept after the deletion of its content while it has entries in metadata.finalizers", func(ctx context.Context) {
		namespace := withFinalizer(wrappers.MakeNamespace(unique("own-finalizer")).Obj())
		create(ctx, namespace)
		create(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers())
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(), HaveContentRemoved())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
		Expect(get(Default, ctx, namespace.Name).Finalizers).To(ConsistOf(testFinalizer))
		removeFinalizers(ctx, namespace)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("causes no write requests while only metadata.finalizers contains finalizers", func(ctx context.Context) {
		stopManager()
		namespace := withFinalizer(wrappers.MakeNamespace(unique("own-finalizer-only")).Obj())
		create(ctx, namespace)
		finalize(ctx, namespace.Name)
		deleteObject(ctx, namespace)
		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers())
		Expect(requests.matching(namespace.Name)).To(BeEmpty())
		removeFinalizers(ctx, namespace)
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A namespace that the cluster requires", func() {
	names := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

	It("cannot be deleted through the API server", func(ctx context.Context) {
		for _, name := range names {
			err := admin.Delete(ctx, wrappers.MakeNamespace(name).Obj())
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			Expect(get(Default, ctx, name)).To(BeActive())
		}
	}, SpecTimeout(5*time.Minute))

	It("is kept with its content if the API server allows the deletion", func(ctx context.Context) {
		useDedicatedControlPlane(ctx, controlplane.WithAPIServerFlag("disable-admission-plugins", "NamespaceLifecycle"))
		Expect(plane.Install(ctx)).To(Succeed())
		startManager(ctx, managerConfig(ctx), withGracePeriod(0))
		// Without finalizers, a write of the condition would make the API server delete the namespace.
		finalizers := map[string][]corev1.FinalizerName{
			metav1.NamespaceDefault: {corev1.FinalizerKubernetes}, metav1.NamespaceSystem: {corev1.FinalizerKubernetes},
			metav1.NamespacePublic: {},
		}
		var objects []client.Object
		for _, name := range names {
			Eventually(admin.Get).WithContext(ctx).WithArguments(client.ObjectKey{Name: name}, &corev1.Namespace{}).Should(Succeed())
			object := wrappers.MakeConfigMap(name, "protected")
			create(ctx, object)
			objects = append(objects, object)
			finalize(ctx, name, finalizers[name]...)
			deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
			if len(finalizers[name]) > 0 {
				eventuallyNamespace(ctx, name, HaveContentFailure("does not delete",
					`namespace "`+name+`" is required`))
			}
		}

		By("checking that the manager finalizes other namespaces")
		namespace := createNamespace(ctx, "other")
		create(ctx, makeConfigMaps(namespace.Name, "a")...)
		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
		expectKept(ctx, objects...)
		for _, name := range names {
			Expect(get(Default, ctx, name)).To(And(BeTerminating(), HaveNamespaceFinalizers(finalizers[name]...)))
		}
	}, SpecTimeout(5*time.Minute))

	It("can be the manager's own namespace, which this manager does not finalize", func(ctx context.Context) {
		useDedicatedControlPlane(ctx)
		Expect(plane.Install(ctx)).To(Succeed())
		name := controlplane.SystemNamespace
		requests := &requestRecorder{}
		startManager(ctx, requests.record(managerConfig(ctx)), func(options *nsmanager.Options) { options.OwnNamespace = name })
		control := createNamespace(ctx, "control")
		deleteObject(ctx, control)
		expectDeleted(ctx, control)

		object := wrappers.MakeConfigMap(name, "protected")
		create(ctx, object)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: name, Name: controlplane.ServiceAccount,
		}}
		begin := time.Now()
		deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
		consistentlyNamespace(ctx, name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveNoFinalizationConditions())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, name)).To(HaveContentFailure("does not delete", "running operator",
				"outside the cluster", "kube-controller-manager"))
		}).WithContext(ctx).WithTimeout(45 * time.Second).Should(Succeed())
		Expect(time.Since(begin)).To(BeNumerically(">", 29*time.Second), "the manager must give other controllers time to finalize the namespace")
		expectKept(ctx, object, account)
		Expect(get(Default, ctx, name)).To(And(BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes)))
		Expect(requests.matching("/namespaces/" + name)).To(ConsistOf(HavePrefix("PATCH /api/v1/namespaces/" + name + "/status")))

		By("starting another manager outside the namespace")
		startManager(ctx, plane.Admin)
		expectDeleted(ctx, wrappers.MakeNamespace(name).Obj())
		expectDeleted(ctx, account)
	}, SpecTimeout(5*time.Minute))
})
