{{define "rule" -}}
matchConditions:
- name: user-is-waiting
  expression: >-
    !(request.userInfo.username in params.?operators.orValue([])) &&
    {{include "containsUser" "subjects" "params.?waitingSubjects.orValue([])"}}
variables:
# As in the gate policy.
- name: cleansUp
  expression: >-
    {{include "cleansUp"}}
validations:
- expression: >-
    !(namespaceObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue()) || variables.cleansUp
  reason: Forbidden
  messageExpression: >-
    'namespace "' + request.namespace + '" is being initialized, and user "' + request.userInfo.username
    + '" must wait, because it is one of the waitingSubjects of a NamespaceInitializerConfiguration.'
    + ' To see its state, run: kubectl get namespace ' + request.namespace + ' --output=yaml'
    + '; if the request is rejected, repeat it after the initialization'
{{- end -}}
# Extends the gate policy to the waitingSubjects of the configurations. They hold the "initialize"
# verb, for example because of a ClusterRole that contains every verb, and RBAC cannot exclude them.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nslifecycle-waiting-subjects
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: waiting-subjects
spec:
  # This is the initial value, as in the inject policy. The operator sets Fail when every API server
  # recognizes the parameter kind and there are waitingSubjects.
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["*"]
      resources: ["*/*"]
      scope: Namespaced
    # Not only in the binding: with failurePolicy Fail, an API server that cannot read the parameters
    # rejects every request that matches these constraints, regardless of the bindings.
    namespaceSelector:
      matchExpressions:
      - key: nslifecycle.dev/initializing
        operator: Exists
  {{include "rule"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-waiting-subjects
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: waiting-subjects
spec:
  policyName: nslifecycle-waiting-subjects
  validationActions: ["Deny"]
  # Without a set, there are no waitingSubjects.
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
  # These rules repeat the policy's match constraints: the operator restores only fields that it sets.
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: nslifecycle.dev/initializing
        operator: Exists
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["*"]
      resources: ["*/*"]
      scope: Namespaced
---
# The same for custom resources named "namespaces", to which the namespaceSelector does not apply, as in
# the gate policy. It is a policy of its own, because the first one must have the namespaceSelector.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nslifecycle-waiting-subjects-resources-named-namespaces
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: waiting-subjects
spec:
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces"]
      scope: Namespaced
  {{include "rule"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-waiting-subjects-resources-named-namespaces
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: waiting-subjects
spec:
  policyName: nslifecycle-waiting-subjects-resources-named-namespaces
  validationActions: ["Deny"]
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
  # These rules repeat the policy's match constraints: the operator restores only fields that it sets.
  matchResources:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces"]
      scope: Namespaced
