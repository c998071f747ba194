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

// storeNamespace writes a namespace past the API server, as one that nobody can write is.
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

// writePhase tries to write the phase of a namespace through the API server.
func writePhase(ctx context.Context, name string, phase corev1.NamespacePhase) error {
	namespace := wrappers.MakeNamespace(name).Obj()
	return admin.Status().Patch(ctx, namespace,
		client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"`+string(phase)+`"}}`)))
}

var _ = Describe("A namespace without deletionTimestamp", func() {
	It("is never touched, whatever its phase", func(ctx context.Context) {
		stopManager()
		living := createNamespace(ctx, "living")
		called := createNamespace(ctx, "called-terminating")
		bare := createNamespace(ctx, "bare")
		finalize(ctx, bare.Name)
		kept := []client.Object{living, called, bare}
		for _, namespace := range []*corev1.Namespace{living, called, bare} {
			objects := settings(namespace.Name, "a", "b")
			create(ctx, objects...)
			kept = append(kept, objects...)
		}

		By("setting the phase to Terminating, which the API server refuses")
		Expect(writePhase(ctx, called.Name, corev1.NamespaceTerminating)).To(Satisfy(apierrors.IsInvalid))
		changed := get(Default, ctx, called.Name)
		changed.Status.Phase = corev1.NamespaceTerminating
		storeNamespace(ctx, changed)
		Expect(get(Default, ctx, called.Name).Status.Phase).To(Equal(corev1.NamespaceTerminating))

		requests := &writes{}
		startOther(ctx, requests.record(managerConfig(ctx)), withSettlingTime(0))
		proof := createNamespace(ctx, "proof")
		deleteObject(ctx, proof)
		expectGone(ctx, proof)

		states := map[string]*corev1.Namespace{}
		for _, name := range []string{living.Name, called.Name, bare.Name} {
			states[name] = get(Default, ctx, name)
		}
		expectKept(ctx, kept...)
		for name, state := range states {
			Expect(get(Default, ctx, name)).To(Equal(state))
			Expect(requests.about("/namespaces/" + name)).To(BeEmpty())
		}
		Expect(get(Default, ctx, living.Name)).To(And(BeActive(), HaveTokens(kubernetesToken), HaveNoVerdict()))

		By("until it is deleted")
		deleteObject(ctx, called)
		deleteObject(ctx, living)
		expectGone(ctx, called)
		expectGone(ctx, living)
		removeAll(ctx, configMaps, bare.Name)
		deleteObject(ctx, bare)
		expectGone(ctx, bare)
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A namespace that is deleted in a state out of the ordinary", func() {
	It("gets phase Terminating where it has another one", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "phase")
		held := hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)
		deleteObject(ctx, namespace)
		Expect(writePhase(ctx, namespace.Name, corev1.NamespaceActive)).To(Satisfy(apierrors.IsInvalid))
		changed := get(Default, ctx, namespace.Name)
		changed.Status.Phase = corev1.NamespaceActive
		storeNamespace(ctx, changed)
		Expect(get(Default, ctx, namespace.Name).Status.Phase).To(Equal(corev1.NamespaceActive))

		startOther(ctx, managerConfig(ctx))
		eventuallyNamespace(ctx, namespace.Name, BeTerminating(), HaveRemaining())

		By("also where it changes later")
		changed = get(Default, ctx, namespace.Name)
		changed.Status.Phase = ""
		storeNamespace(ctx, changed)
		eventuallyNamespace(ctx, namespace.Name, BeTerminating())
		release(ctx, held)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))

	It("is deleted without namespace finalizers once a manager runs", func(ctx context.Context) {
		stopManager()
		namespace := createNamespace(ctx, "no-tokens")
		finalize(ctx, namespace.Name)
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens())

		requests := &writes{}
		startOther(ctx, requests.record(managerConfig(ctx)))
		expectGone(ctx, namespace)
		Expect(requests.about(namespace.Name)).To(ConsistOf("DELETE /api/v1/namespaces/" + namespace.Name + " (1)"))
	}, SpecTimeout(time.Minute))

	It("stays, empty, as long as it has finalizers of its own", func(ctx context.Context) {
		namespace := hold(wrappers.MakeNamespace(unique("own-finalizer")).Obj())
		create(ctx, namespace)
		create(ctx, settings(namespace.Name, "a", "b")...)
		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveTokens())
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(), HaveNothingLeft())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
		Expect(get(Default, ctx, namespace.Name).Finalizers).To(ConsistOf(testFinalizer))
		release(ctx, namespace)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))

	It("with finalizers but without namespace finalizers is kept and not requested repeatedly", func(ctx context.Context) {
		stopManager()
		namespace := hold(wrappers.MakeNamespace(unique("own-finalizer-only")).Obj())
		create(ctx, namespace)
		finalize(ctx, namespace.Name)
		deleteObject(ctx, namespace)
		requests := &writes{}
		startOther(ctx, requests.record(managerConfig(ctx)))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens())
		Expect(requests.about(namespace.Name)).To(BeEmpty())
		release(ctx, namespace)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A namespace that the cluster cannot do without", func() {
	names := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

	It("is one that the API server refuses to delete", func(ctx context.Context) {
		for _, name := range names {
			err := admin.Delete(ctx, wrappers.MakeNamespace(name).Obj())
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			Expect(get(Default, ctx, name)).To(BeActive())
		}
	}, SpecTimeout(time.Minute))

	It("is left alone with all that is in it where the API server does not refuse", func(ctx context.Context) {
		useOwnPlane(ctx, controlplane.WithAPIServerFlag("disable-admission-plugins", "NamespaceLifecycle"))
		Expect(plane.Install(ctx)).To(Succeed())
		startOther(ctx, managerConfig(ctx), withSettlingTime(0))
		var objects []client.Object
		for _, name := range names {
			Eventually(admin.Get).WithContext(ctx).WithArguments(client.ObjectKey{Name: name}, &corev1.Namespace{}).Should(Succeed())
			object := wrappers.MakeConfigMap(name, "precious")
			create(ctx, object)
			objects = append(objects, object)
			deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
			eventuallyNamespace(ctx, name, HaveContentFailure("is not deleted",
				`namespace "`+name+`" is required`))
		}
		expectKept(ctx, objects...)
		for _, name := range names {
			Expect(get(Default, ctx, name)).To(HaveTokens(kubernetesToken))
		}

		By("checking that it finalizes other namespaces")
		namespace := createNamespace(ctx, "other")
		create(ctx, settings(namespace.Name, "a")...)
		deleteObject(ctx, namespace)
		expectGone(ctx, namespace)
	}, SpecTimeout(time.Minute))

	It("is the manager's own as well, to the manager that runs in it", func(ctx context.Context) {
		useOwnPlane(ctx)
		Expect(plane.Install(ctx)).To(Succeed())
		name := controlplane.SystemNamespace
		requests := &writes{}
		startOther(ctx, requests.record(managerConfig(ctx)), func(options *nsmanager.Options) { options.OwnNamespace = name })
		proof := createNamespace(ctx, "proof")
		deleteObject(ctx, proof)
		expectGone(ctx, proof)

		object := wrappers.MakeConfigMap(name, "precious")
		create(ctx, object)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: name, Name: controlplane.ServiceAccount,
		}}
		begin := time.Now()
		deleteObject(ctx, wrappers.MakeNamespace(name).Obj())
		consistentlyNamespace(ctx, name, BeTerminating(), HaveTokens(kubernetesToken), HaveNoVerdict())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, name)).To(HaveContentFailure("is not deleted", "running operator",
				"outside the cluster", "kube-controller-manager"))
		}).WithContext(ctx).WithTimeout(45 * time.Second).Should(Succeed())
		Expect(time.Since(begin)).To(BeNumerically(">", 29*time.Second), "another controller had time to finalize it")
		expectKept(ctx, object, account)
		Expect(get(Default, ctx, name)).To(And(BeTerminating(), HaveTokens(kubernetesToken)))
		Expect(requests.about("/namespaces/" + name)).To(ConsistOf(HavePrefix("PATCH /api/v1/namespaces/" + name + "/status")))

		By("starting another manager outside of it")
		startOther(ctx, plane.Admin)
		expectGone(ctx, wrappers.MakeNamespace(name).Obj())
		expectGone(ctx, account)
	}, SpecTimeout(2*time.Minute))
})
