// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// User is a user of a Cluster, with a client that sends requests as this user. A method of client.Client, such as
// Create, returns its error. A method such as Creates fails the spec if the request fails.
type User struct {
	client.Client
	Config *rest.Config
}

// NewUser returns a user with a client for the types in the manager's scheme. The add functions register more types.
func NewUser(config *rest.Config, add ...func(*runtime.Scheme) error) *User {
	GinkgoHelper()
	api, err := controlplane.NewClient(config, add...)
	Expect(err).NotTo(HaveOccurred())
	return &User{Client: api, Config: config}
}

// Clientset returns a typed client for the user without a client-side rate limit.
func (u *User) Clientset() kubernetes.Interface {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(u.Config))
	Expect(err).NotTo(HaveOccurred())
	return clientset
}

// Creates creates objects, in order.
func (u *User) Creates(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(u.Create(ctx, object)).To(Succeed(), "%T %s", object, object.GetName())
	}
}

// Reads gets the current state of objects by name and namespace.
func (u *User) Reads(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(u.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed(), "%T %s", object, object.GetName())
	}
}

// Updates replaces an object.
func (u *User) Updates(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(u.Update(ctx, object)).To(Succeed())
}

// Patches applies a JSON merge patch to an object.
func (u *User) Patches(ctx context.Context, object client.Object, patch string) {
	GinkgoHelper()
	Expect(u.Patch(ctx, object, MergePatch(patch))).To(Succeed())
}

// Deletes deletes objects, in order. An object with finalizers can remain.
func (u *User) Deletes(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(u.Delete(ctx, object)).To(Succeed(), "%T %s", object, object.GetName())
	}
}

// CreateAs creates an object as a user, and returns it.
func CreateAs[T client.Object](ctx context.Context, user *User, object T) T {
	GinkgoHelper()
	user.Creates(ctx, object)
	return object
}
