# Limits where the ServiceAccount can write. Users who may impersonate it can send any request that role.yaml permits,
# also without a template. In each namespace in which it can create a RoleBinding, they can become administrators, who
# can use all ServiceAccounts of the namespace. Therefore it writes only to namespaces that are initialized with
# templates: no user can set the annotation, and it never changes.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nslifecycle-provisioner
  labels:
    nslifecycle.dev/policy: provisioner
spec:
  failurePolicy: Fail
  # The types in role.yaml. The API server evaluates the match condition for the writes of all users.
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE", "DELETE"]
      resources: ["resourcequotas", "limitranges"]
      scope: Namespaced
    - apiGroups: ["networking.k8s.io"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE", "DELETE"]
      resources: ["networkpolicies"]
      scope: Namespaced
    - apiGroups: ["rbac.authorization.k8s.io"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE", "DELETE"]
      resources: ["rolebindings"]
      scope: Namespaced
  # The namespace is not compared, as in the confine policy.
  matchConditions:
  - name: is-provisioner
    expression: >-
      request.userInfo.username.startsWith('system:serviceaccount:') &&
      request.userInfo.username.endsWith(':nslifecycle-provisioner')
  validations:
  - expression: "namespaceObject.metadata.?annotations[?'nslifecycle.dev/selected-templates'].hasValue()"
    reason: Forbidden
    messageExpression: >-
      'ServiceAccount nslifecycle-provisioner can write only to namespaces that a template selected when they were created,'
      + ' and none selected "' + request.namespace + '": use another ServiceAccount'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-provisioner
  labels:
    nslifecycle.dev/policy: provisioner
spec:
  policyName: nslifecycle-provisioner
  validationActions: ["Deny"]
