// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/model"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = It("The models contain writes that are held while a namespace is deleted and recreated", func(ctx context.Context) {
	cluster.Register(ctx, "recorded", "first.test.example.com")
	name := framework.Unique("recorded")
	old := framework.CreateNamespace(ctx, cluster.Ordinary, name)
	Expect(cluster.Initializer.Create(ctx, wrappers.MakeConfigMap(name, "initializer"))).To(Succeed())
	rejected := startCreate(ctx, cluster.Ordinary, name, "web")
	Expect(cluster.Ordinary.Delete(ctx, old)).To(Succeed())
	Eventually(rejected).WithContext(ctx).Should(Receive(HaveField("Err", HaveOccurred())))
	framework.ExpectDeleted(ctx, cluster.Admin, old)

	framework.CreateNamespace(ctx, cluster.Ordinary, name)
	object := wrappers.MakeConfigMap(name, "initializer")
	Expect(cluster.Initializer.Create(ctx, object)).To(Succeed())
	held := startCreate(ctx, cluster.Ordinary, name, "web")
	cluster.Finish(ctx, name)
	var got result
	Eventually(held).WithContext(ctx).Should(Receive(&got))
	Expect(got.Err).To(Satisfy(apierrors.IsTooManyRequests))
	Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, "web"))).To(Succeed())
	object.Data = map[string]string{"a": "b"}
	Expect(cluster.Ordinary.Update(ctx, object)).To(Succeed())

	checked, err := model.Recording{
		Servers: 1, HasHold: true, Operator: framework.ManagerUser, Ordinary: framework.OrdinaryUser,
		Steps: cluster.Observation.CollectEvidence(ctx).Steps(),
	}.Check()
	Expect(err).NotTo(HaveOccurred())
	Expect(checked).To(And(HaveKeyWithValue("the CREATE is stored", 1), HaveKeyWithValue("the UPDATE is stored", 1)))
}, SpecTimeout(5*time.Minute))
