// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
)

// errBusy is the error that reports that a bucket contains objects.
var errBusy = errors.New("the bucket is not empty")

// buckets represents an external service. It identifies buckets by the UID of the Namespace, because a
// name can be reused.
type buckets map[string]int

func (b buckets) Delete(_ context.Context, uid string) error {
	if b[uid] > 0 {
		b[uid]--
		return errBusy
	}
	delete(b, uid)
	return nil
}

// This program deletes the bucket of each Namespace after the content of the Namespace is deleted.
func ExampleAdd() {
	run := func(ctx context.Context, service buckets) error {
		mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
			LeaderElection: true, LeaderElectionID: "buckets.corp.example.com",
		})
		if err != nil {
			return err
		}
		err = finalizer.Add(mgr, "buckets.corp.example.com/bucket",
			func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
				// The function is idempotent. If it returns nil, the finalizer is removed.
				return finalizer.Result{}, service.Delete(ctx, string(namespace.UID))
			},
			finalizer.AfterContent())
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	_ = run
}

// A bucket that still contains objects is not an error, because deleting them takes time. The function
// is called again until it returns nil.
func ExampleNotYet() {
	service := buckets{"1234": 2}
	deleteBucket := func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
		err := service.Delete(ctx, string(namespace.UID))
		if errors.Is(err, errBusy) {
			return finalizer.Result{}, finalizer.NotYet(10*time.Second, "EmptyingBucket", "bucket %s: %v", namespace.Name, err)
		}
		return finalizer.Result{Reason: "BucketDeleted", Message: "the bucket was deleted"}, err
	}

	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "1234"}}
	for {
		result, err := deleteBucket(context.Background(), shop)
		var notYet *finalizer.NotYetError
		if errors.As(err, &notYet) {
			fmt.Printf("%s, again after %s\n", notYet.Message, notYet.After)
			continue
		}
		fmt.Println(result.Message)
		break
	}
	// Output:
	// bucket shop: the bucket is not empty, again after 10s
	// bucket shop: the bucket is not empty, again after 10s
	// the bucket was deleted
}

// The finalizer is added to existing and new Namespaces that have a label.
func ExampleAddFinalizer() {
	selectsTeams := func(namespace *corev1.Namespace) bool { return namespace.Labels["corp.example.com/team"] != "" }
	option := finalizer.AddFinalizer(selectsTeams)
	_ = option // Pass the option to finalizer.Add.
	fmt.Println(selectsTeams(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", Labels: map[string]string{"corp.example.com/team": "a"},
	}}))
	// Output: true
}
